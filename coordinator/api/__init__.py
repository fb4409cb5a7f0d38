"""HTTP shapes in and out: each route translates to a generation request and back. Nothing imports this package but app."""
