"""Converts values of request fields to the protocol's; those it cannot represent are rejected by name."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tokenwire.coordinator.generation.limits import MAX_BIASES, MAX_IDS, MAX_SEQUENCES, out_of_vocabulary
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb


def int32(value: int | None, param: str) -> int | None:
    """Return a number that fits in the protocol. Raises InvalidRequest."""
    if value is not None and not -(2**31) <= value < 2**31:
        raise InvalidRequest(f"{param} is out of range: {value}", param=param)
    return value


def ids(token_ids: list[int] | None, param: str) -> list[int]:
    """Return ids without duplicates. Raises InvalidRequest for values that cannot be ids."""
    if token_ids and len(token_ids) > MAX_IDS:  # before each is looked at
        raise InvalidRequest(f"{param} has {len(token_ids)} entries, more than {MAX_IDS}.", param=param)
    for token_id in token_ids or ():
        if not 0 <= token_id < 2**32:
            raise out_of_vocabulary(token_id, param)
    return list(dict.fromkeys(token_ids or ()))


def logit_bias(bias: dict[str, float] | None) -> dict[int, float]:
    """Return biases by id, clamped to the allowed range. Raises InvalidRequest."""
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
    """Check the number of biases before their values are parsed. Raises InvalidRequest."""
    if isinstance(bias, dict) and len(bias) > MAX_BIASES:
        raise InvalidRequest(f"logit_bias has {len(bias)} entries, more than {MAX_BIASES}.", param="logit_bias")
    return bias


def checked_cache_salt(salt: object) -> str | None:
    """Return a salt that caches behind the engine accept. Raises InvalidRequest."""
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
    """Return a thinking budget; None: unlimited. Raises InvalidRequest."""
    if budget is None or budget == -1:
        return None
    if not isinstance(budget, int) or isinstance(budget, bool) or not 0 <= budget < 2**31:
        raise InvalidRequest(
            "`thinking_token_budget` must be a non-negative integer or -1 for unlimited.",
            param="thinking_token_budget",
        )
    return budget


def checked_number(name: str) -> Callable[[object], object]:
    """Return a validator that rejects strings that look like numbers. It raises InvalidRequest."""

    def check(value: object) -> object:
        if value is not None and not isinstance(value, int | float):
            raise InvalidRequest(f"`{name}` must be an integer.", param=name)
        return value

    return check


def checked_prompts(name: str) -> Callable[[object], object]:
    """Return a validator of the number of prompts, run before they are parsed. It raises InvalidRequest."""

    def check(value: object) -> object:
        if isinstance(value, list) and len(value) > MAX_SEQUENCES and not isinstance(value[0], int):
            raise InvalidRequest(f"`{name}` has {len(value)} entries, more than {MAX_SEQUENCES}.", param=name)
        return value

    return check


def set_engine_fields(
    sampling: pb.SamplingParams,
    kv_transfer: Mapping[str, Any] | None,
    ec_transfer: Mapping[str, Any] | None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Set the fields that are passed through to the engine."""
    given = {"kv_transfer_params": kv_transfer, "ec_transfer_params": ec_transfer, "extra_args": extra}
    for name, value in given.items():
        if value:  # as in vLLM, an empty object counts as absent
            setattr(sampling, f"{name}_json", json.dumps(value))
