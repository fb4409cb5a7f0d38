"""Translates vLLM's exceptions to tokenwire's errors, keeping vLLM's messages."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from vllm import exceptions
from vllm.exceptions import VLLMNotFoundError, VLLMValidationError
from vllm.v1.engine.exceptions import EngineDeadError

from tokenwire.errors import (
    EngineFailed,
    InvalidRequest,
    NotFound,
    Overloaded,
    TokenwireError,
    Unavailable,
    Unsupported,
)

DEAD = "The engine died; see its log."


_HIDDEN = re.compile(r" at 0x[0-9a-fA-F]+|\x1b\[[0-9;]*m")
"""Addresses of objects, and colours."""


class _Absent(Exception):
    """Stands for an exception that this vLLM does not have."""


# In vLLM 0.26 validation errors are the only ones of clients, and nothing limits the engine's queue.
_ClientError: type[Exception] = getattr(exceptions, "VLLMClientError", VLLMValidationError)
_OverloadError: type[Exception] = getattr(exceptions, "GracefulHTTPError", _Absent)


def shown(error: Exception) -> str:
    """Return an error's own text, or else its name, without addresses of objects, which tell where a heap is."""
    # str() of vLLM's would append the parameter and its value, which may be long.
    text = Exception.__str__(error) if isinstance(error, _ClientError) else str(error)
    return _HIDDEN.sub("", text).strip() or type(error).__name__


def translate(error: Exception) -> TokenwireError:
    """Return the TokenwireError for an exception of vLLM, by the rules of vLLM's own HTTP server."""
    match error:
        case TokenwireError():
            return error
        case EngineDeadError():
            return Unavailable(DEAD)
        case _OverloadError():
            return Overloaded(shown(error))
        case VLLMNotFoundError():
            return NotFound(shown(error))
        case _ClientError():
            return InvalidRequest(shown(error), param=getattr(error, "parameter", None))
        case NotImplementedError():
            return Unsupported(shown(error))
        case ValueError() | TypeError() | OverflowError():
            return InvalidRequest(shown(error))
        case _:
            return EngineFailed(shown(error))


@contextmanager
def vllm_errors() -> Iterator[None]:
    """Translate exceptions that vLLM raises inside the block."""
    try:
        yield
    except TokenwireError:
        raise
    except Exception as error:
        raise translate(error) from error
