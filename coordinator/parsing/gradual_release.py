"""Frees what vLLM's parser engine made of a long reply some objects at a time, so that other threads have their turns.

It makes three objects of each character of a call's arguments, and drops them all at once: half a million are freed
within one instruction, for which every thread waits.
"""

from typing import Any

_AT_ONCE = 4096
_MERGE, _ENGINE = "_coalesce_tool_call_deltas", "_parser_engine_cls"
"""vLLM's names: what has others is left as it is."""


def releasing_gradually(cls: type[Any]) -> type[Any]:
    """Return a parser class whose tool parser frees its deltas so, if it is on vLLM's parser engine."""
    tools = cls.tool_parser_cls
    engine = getattr(tools, _ENGINE, None)
    if not hasattr(engine, _MERGE):
        return cls

    def merge(deltas: list[Any]) -> list[Any]:
        merged: list[Any] = getattr(engine, _MERGE)(deltas)
        while merged is not deltas and deltas:
            del deltas[-_AT_ONCE:]
        return merged

    patient = _derived(engine, {_MERGE: staticmethod(merge)})
    return _derived(cls, {"tool_parser_cls": _derived(tools, {_ENGINE: patient})})


def _derived(cls: Any, changes: dict[str, Any]) -> type[Any]:
    return type(cls.__name__, (cls,), changes)
