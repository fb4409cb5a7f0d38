"""Tests of coordinator.metrics."""
