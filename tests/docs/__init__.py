"""The documentation: its site, its links, its commands."""
