"""A hostile client: draws expensive requests by seed, and measures what each costs a background client.

And a hostile worker, which announces what nobody ordered.
"""
