"""The client's connection: protocol, backpressure, limits, TLS."""
