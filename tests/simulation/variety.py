"""What else differs between fleets and between requests: drawn apart, so that a seed's other draws stay as they are."""

import random
from collections.abc import Mapping
from typing import Any

LONG_REPLY = 400
"""The most tokens of a long reply, in fleets with a context for it."""
_LONG_CONTEXT = 1024


def vary_fleet(rng: random.Random, config: dict[str, Any]) -> None:
    """Draw the policy of resumption, which engines have which capabilities, and whether replies may be long."""
    every = list(range(config["workers"]))
    config["resume"] = rng.choice(["auto", "auto", "exact", "plausible", "plausible"])
    some = sorted(rng.sample(every, rng.randrange(1, len(every))))
    config["batch_variant"] = rng.choice([[], [], every, every, some])
    config["generators"] = rng.choice([[], [], [], some])
    engine = config["engine"]
    if config["crowd_s"] is None and rng.random() < 0.15:
        engine["max_model_len"], engine["kv_tokens"] = _LONG_CONTEXT, rng.choice([None, 1280])
        engine["max_num_seqs"] = max(4, engine["max_num_seqs"])


def vary_request(rng: random.Random, config: Mapping[str, Any], spec: dict[str, Any]) -> None:
    """Draw what is asked of one request besides, and whether its client gets ids."""
    if rng.random() < 0.2:
        spec["sampling"] = rng.choice(["penalty", "unseeded penalty"])
    if spec["route"] == "completions" and rng.random() < 0.3:
        spec["route"], spec["has_text"] = "generate", rng.random() < 0.5
    spec["ids"] = rng.random() < 0.5
    if config["engine"]["max_model_len"] == _LONG_CONTEXT and rng.random() < 0.2:
        spec["max_tokens"] = LONG_REPLY
    if rng.random() < 0.25:
        spec["min_tokens"] = rng.choice([1, 5, 40])
        spec["max_tokens"] = max(spec["max_tokens"], spec["min_tokens"])
    if rng.random() < 0.15:
        spec["stop_token_ids"] = rng.sample(range(65, 91), 2)
    spec["ignore_eos"] = rng.random() < 0.15
    spec["include_stop"] = rng.random() < 0.2
    if rng.random() < 0.15 and spec["route"] != "chat":
        spec["prompt_logprobs"], spec["stream"] = rng.choice([0, 2]), False
    own = random.Random(f"{spec['id']} {spec['prompt']} {spec['seed']}")  # no draw of other requests depends on it
    if own.random() < 0.2:
        spec["max_weight_lag"] = own.choice([0, 0, 1])
