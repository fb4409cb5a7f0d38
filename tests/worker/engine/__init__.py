"""What surrounds an engine."""
