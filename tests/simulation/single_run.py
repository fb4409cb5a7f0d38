"""Which replies must be those of one undisturbed run, by the documented rules of `--resume-policy`."""

from collections.abc import Mapping
from typing import Any

SEEDED = ("seeded", "penalty")
"""Kinds of sampling with a seed of the client's."""
PENALIZED = ("penalty", "unseeded penalty")
"""Those with a penalty, which depends on where the output begins."""


def asks_for_ids(spec: Mapping[str, Any]) -> bool:
    """Return whether a request's client gets token ids."""
    return bool(spec.get("ids", True) or spec["route"] == "generate")


def prefers_error(spec: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Return whether a request prefers an error to a reply that no single run has generated."""
    policy = config.get("resume", "auto")
    return policy == "exact" or (policy == "auto" and (asks_for_ids(spec) or spec["logprobs"] is not None))


def needs_single_run(spec: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Return whether all tokens of a choice must be those of one run.

    Engines that are all alike and batch-invariant leave no other way. Sampled without a seed, any run's next tokens do.
    """
    if spec["sampling"] == "plain":
        return False
    return prefers_error(spec, config) or not (config.get("batch_variant") or config.get("generators"))
