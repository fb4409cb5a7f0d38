"""What every process needs."""
