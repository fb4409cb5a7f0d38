"""The status page in a real browser: a kind of its own, as it needs one.

Its routes are tested without in tests/coordinator/api/status_page.
"""
