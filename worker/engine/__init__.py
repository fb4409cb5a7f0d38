"""The interface to an engine, its unsent output, and whether it still makes steps."""
