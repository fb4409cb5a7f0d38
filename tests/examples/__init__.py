"""Examples run as they are."""
