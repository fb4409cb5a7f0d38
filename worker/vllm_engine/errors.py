"""Translates vLLM's exceptions to tokenwire's errors, keeping vLLM's messages."""

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


class _Absent(Exception):
    """Stands for an exception that this vLLM does not have."""


# In vLLM 0.26 validation errors are the only ones of clients, and nothing limits the engine's queue.
_ClientError: type[Exception] = getattr(exceptions, "VLLMClientError", VLLMValidationError)
_OverloadError: type[Exception] = getattr(exceptions, "GracefulHTTPError", _Absent)


def translate(error: Exception) -> TokenwireError:
    """Return the TokenwireError for an exception of vLLM, by the rules of vLLM's own HTTP server."""
    match error:
        case TokenwireError():
            return error
        case EngineDeadError():
            return Unavailable(DEAD)
        case _OverloadError():
            return Overloaded(str(error))
        case VLLMNotFoundError():
            return NotFound(str(error))
        case _ClientError():
            # str() would append the parameter and its value, which may be long.
            return InvalidRequest(Exception.__str__(error).strip(), param=getattr(error, "parameter", None))
        case NotImplementedError():
            return Unsupported(str(error))
        case ValueError() | TypeError() | OverflowError():
            return InvalidRequest(str(error).strip())
        case _:
            return EngineFailed(str(error) or type(error).__name__)


@contextmanager
def vllm_errors() -> Iterator[None]:
    """Translate exceptions that vLLM raises inside the block."""
    try:
        yield
    except TokenwireError:
        raise
    except Exception as error:
        raise translate(error) from error
