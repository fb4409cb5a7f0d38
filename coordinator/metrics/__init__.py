"""What Prometheus is told: counted at a request's end, or collected when it asks."""
