"""A model that sees pictures and is small enough for tests: Idefics3 with random weights."""
