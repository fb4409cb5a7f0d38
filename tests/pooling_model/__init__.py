"""Models that pool and are small enough for tests: of BERT's architecture, with random weights."""
