"""What the service says of itself: an OpenAPI document of the routes that are on, and a page that shows it."""
