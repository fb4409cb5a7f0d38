"""Tests of the store of responses."""
