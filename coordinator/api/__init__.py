"""HTTP schemas in and out: each route translates to a generation request and back. Only app imports the routes."""
