"""Tests of coordinator.parsing."""
