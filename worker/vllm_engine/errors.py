"""Translates vLLM's exceptions to tokenwire's errors, keeping vLLM's messages."""

from collections.abc import Iterator
from contextlib import contextmanager

from vllm.exceptions import GracefulHTTPError, VLLMClientError, VLLMNotFoundError
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


def translate(error: Exception) -> TokenwireError:
    """Return the TokenwireError for an exception of vLLM, by the rules of vLLM's own HTTP server."""
    match error:
        case TokenwireError():
            return error
        case EngineDeadError():
            return Unavailable(DEAD)
        case GracefulHTTPError():
            return Overloaded(str(error))
        case VLLMNotFoundError():
            return NotFound(str(error))
        case VLLMClientError():
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
