"""Tests of coordinator.observability."""
