"""What an engine's prefix cache holds, for coordinators."""
