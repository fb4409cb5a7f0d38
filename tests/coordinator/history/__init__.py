"""Tests of coordinator.history."""
