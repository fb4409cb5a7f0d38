"""What both halves do alike."""
