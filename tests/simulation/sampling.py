"""Further parameters of sampling: most change nothing in a simulated engine, and resumptions must keep them all."""

import random
from typing import Any

from tests.simulation.single_run import PENALIZED

_SHARE = 0.1
_LETTERS = range(65, 91)
_ANY: dict[str, tuple[Any, ...]] = {
    "top_p": (0.5, 0.9),
    "top_k": (5, 40),
    "min_p": (0.05,),
    "repetition_penalty": (0.9, 1.2),
    "logit_bias": ({"66": 2.5, "71": -100.0}, {"80": -1.0}),
    "allowed_token_ids": ([*_LETTERS], [*_LETTERS[5:]]),
    "watermarking": (True,),
}
_WITH_PENALTY: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (-0.5, 1.0),
    "bad_words": (["no", "never"],),
    "repetition_detection": ({"max_pattern_size": 4, "min_pattern_size": 2, "min_count": 9},),
}
"""Those that depend on where the output begins, as its penalty does."""
DRAWN = ("temperature", *_ANY, *_WITH_PENALTY)
"""All that have a name."""


def draw_parameters(rng: random.Random, spec: dict[str, Any]) -> None:
    """Draw further parameters of a request; those that its kind of sampling sets are replaced."""
    values = _ANY | (_WITH_PENALTY if spec["sampling"] in PENALIZED else {})
    if spec["sampling"] != "greedy":
        values["temperature"] = (0.3, 0.7)
    drawn = {name: rng.choice(each) for name, each in values.items() if rng.random() < _SHARE}
    if "prompt_logprobs" in spec:  # which are those of all words
        drawn.pop("logit_bias", None)
        drawn.pop("allowed_token_ids", None)
    spec["parameters"] = drawn
