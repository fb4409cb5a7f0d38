"""HTTP shapes in and out: each route translates to a generation request and back. Only app imports its routes."""
