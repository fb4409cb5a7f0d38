"""Mutation testing: small changes to the parts that promise exactness, which tests and simulation must notice."""
