"""Request and reply fields shared by several routes."""
