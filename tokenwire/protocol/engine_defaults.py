"""Sampling parameters that apply where nobody sets others, as in vLLM."""

ENGINE_DEFAULTS: dict[str, float | int] = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
}
"""Where neither the request nor the model's generation config sets one. A request that sets these asks for nothing."""
