"""Other people's load generators against tokenwire, `vllm serve` and SMG."""
