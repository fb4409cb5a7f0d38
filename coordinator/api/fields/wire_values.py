"""Values of request fields as the wire takes them; what the wire cannot carry is refused by name."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tokenwire.coordinator.generation.limits import MAX_BIASES, MAX_IDS, MAX_SEQUENCES, out_of_vocabulary
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb


def int32(value: int | None, param: str) -> int | None:
    """Return a number that fits the wire. Raises InvalidRequest."""
    if value is not None and not -(2**31) <= value < 2**31:
        raise InvalidRequest(f"{param} is out of range: {value}", param=param)
    return value


def ids(token_ids: list[int] | None, param: str) -> list[int]:
    """Return ids, each once. Raises InvalidRequest for what can be no id."""
    if token_ids and len(token_ids) > MAX_IDS:  # before each is looked at
        raise InvalidRequest(f"{param} has {len(token_ids)} entries, more than {MAX_IDS}.", param=param)
    for token_id in token_ids or ():
        if not 0 <= token_id < 2**32:
            raise out_of_vocabulary(token_id, param)
    return list(dict.fromkeys(token_ids or ()))


def logit_bias(bias: dict[str, float] | None) -> dict[int, float]:
    """Return biases by id, cut to the allowed range. Raises InvalidRequest."""
    resolved: dict[int, float] = {}
    invalid: list[str] = []
    for key, value in (bias or {}).items():
        try:
            resolved[int(key)] = min(100.0, max(-100.0, value))
        except ValueError:
            invalid.append(key)
    if invalid:
        raise InvalidRequest(
            f"logit_bias contains key(s) that cannot be converted to integer token IDs: {invalid!r}",
            param="logit_bias",
        )
    ids(list(resolved), "logit_bias")
    return resolved


def checked_biases(bias: object) -> object:
    """Check how many biases there are, before each is looked at. Raises InvalidRequest."""
    if isinstance(bias, dict) and len(bias) > MAX_BIASES:
        raise InvalidRequest(f"logit_bias has {len(bias)} entries, more than {MAX_BIASES}.", param="logit_bias")
    return bias


def checked_cache_salt(salt: object) -> str | None:
    """Return a salt that caches behind the engine can take. Raises InvalidRequest."""
    if salt is None:
        return None
    if not isinstance(salt, str) or not salt:
        raise InvalidRequest("Parameter 'cache_salt' must be a non-empty string if provided.", param="cache_salt")
    if len(salt) > 128 or any(character in salt for character in "@/\\\0"):
        raise InvalidRequest(
            "Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/', '\\\\', or NUL.",
            param="cache_salt",
        )
    return salt


def checked_budget(budget: object) -> int | None:
    """Return a budget of thinking, None for none. Raises InvalidRequest."""
    if budget is None or budget == -1:
        return None
    if not isinstance(budget, int) or isinstance(budget, bool) or not 0 <= budget < 2**31:
        raise InvalidRequest(
            "`thinking_token_budget` must be a non-negative integer or -1 for unlimited.",
            param="thinking_token_budget",
        )
    return budget


def checked_number(name: str) -> Callable[[object], object]:
    """Return a check that a field is no text that looks like a number. It raises InvalidRequest."""

    def check(value: object) -> object:
        if value is not None and not isinstance(value, int | float):
            raise InvalidRequest(f"`{name}` must be an integer.", param=name)
        return value

    return check


def checked_prompts(name: str) -> Callable[[object], object]:
    """Return a check that there are not too many prompts, before each is looked at. It raises InvalidRequest."""

    def check(value: object) -> object:
        if isinstance(value, list) and len(value) > MAX_SEQUENCES and not isinstance(value[0], int):
            raise InvalidRequest(f"`{name}` has {len(value)} entries, more than {MAX_SEQUENCES}.", param=name)
        return value

    return check


def hand_on(
    sampling: pb.SamplingParams,
    kv_transfer: Mapping[str, Any] | None,
    ec_transfer: Mapping[str, Any] | None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Add what is the engine's own business."""
    given = {"kv_transfer_params": kv_transfer, "ec_transfer_params": ec_transfer, "extra_args": extra}
    for name, value in given.items():
        if value:  # an empty object is nothing, as in vLLM
            setattr(sampling, f"{name}_json", json.dumps(value))
