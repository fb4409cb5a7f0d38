"""The workers: sessions, routing, admission and failover. Handles token ids and no text."""
