"""What a worker serves: sessions, control calls, health and metrics."""
