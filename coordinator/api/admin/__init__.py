"""Routes that change what workers serve."""
