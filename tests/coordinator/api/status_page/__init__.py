"""The status page without a browser."""
