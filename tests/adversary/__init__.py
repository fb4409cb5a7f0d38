"""A hostile client: draws expensive requests by seed, and measures what each costs a background client."""
