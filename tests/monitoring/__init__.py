"""Dashboard and alerts."""
