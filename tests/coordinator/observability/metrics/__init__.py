"""Tests of coordinator.observability.metrics."""
