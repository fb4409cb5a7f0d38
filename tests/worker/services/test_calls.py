"""Tests of the answers to unary calls."""

from typing import Any

import grpc
import pytest

from tokenwire.errors import Overloaded
from tokenwire.worker.services.calls import answered


class _Ended(Exception):
    """What gRPC raises where a call is ended with a status."""


class _Call:
    """Stands for the context of a call."""

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        """End the call."""
        raise _Ended(code, details)


async def test_an_error_is_the_status_of_its_call() -> None:
    """With its message; what is returned is returned."""
    context: Any = _Call()

    async def works() -> str:
        return "done"

    async def fails() -> str:
        raise Overloaded("Too many.", retry_after_s=1.0)

    assert await answered(context, works) == "done"
    with pytest.raises(_Ended) as ended:
        await answered(context, fails)
    assert ended.value.args == (grpc.StatusCode.RESOURCE_EXHAUSTED, "Too many.")
