"""Tests of coordinator.text."""
