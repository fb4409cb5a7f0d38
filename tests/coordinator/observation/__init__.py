"""Tests of coordinator.observation."""
