"""Responses in two parts: what is equal to the last character, and numbers, which are nearly equal."""

from typing import Any


def stable_fields(value: Any) -> Any:
    """Return a response without what differs by itself, or is compared as a number; null is as good as absent."""
    if isinstance(value, list):
        return [stable_fields(each) for each in value]
    if isinstance(value, dict):
        left_out = ("id", "created")
        return {name: stable_fields(each) for name, each in value.items() if each is not None and name not in left_out}
    return 0.0 if isinstance(value, float) else value


def numbers_of(value: Any) -> list[float]:
    """Return the numbers of a response, in their order."""
    if isinstance(value, list | dict):
        inner = value if isinstance(value, list) else [value[name] for name in sorted(value)]
        return [number for each in inner for number in numbers_of(each)]
    return [value] if isinstance(value, float) else []
