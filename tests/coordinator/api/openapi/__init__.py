"""Tests of the service's description of itself."""
