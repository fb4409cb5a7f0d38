"""Tests of the status page without a browser."""
