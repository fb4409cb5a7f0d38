"""/sessions: prefixes and key suffixes that name sessions, and the routes of what was recorded of them."""
