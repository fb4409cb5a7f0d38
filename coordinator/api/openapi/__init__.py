"""The OpenAPI document of the enabled routes, and a page that renders it."""
