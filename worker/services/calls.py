"""Answers unary calls."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc

from tokenwire.errors import TokenwireError

CallResponse = TypeVar("CallResponse")


async def answered(
    context: grpc.aio.ServicerContext[Any, Any], verb: Callable[[], Awaitable[CallResponse]]
) -> CallResponse:
    """Return what a call is answered with, or end it with the status of its error."""
    try:
        return await verb()
    except TokenwireError as error:
        await context.abort(error.grpc_code, error.message)
    raise AssertionError("unreachable: abort raises")
