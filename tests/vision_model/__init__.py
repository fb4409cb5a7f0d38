"""Models that see pictures and are small enough for tests, with random weights: Idefics3 and Qwen2.5-VL."""
