"""Generates the Grafana dashboard."""
