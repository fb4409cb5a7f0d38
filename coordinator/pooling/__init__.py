"""Pooling: embeddings, classes and scores of inputs, between the routes and the fleet."""
