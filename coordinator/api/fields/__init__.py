"""Request and reply fields that several routes share."""
