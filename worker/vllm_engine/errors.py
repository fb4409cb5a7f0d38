"""vLLM's exceptions as ours, with vLLM's own words."""

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

DEAD = "The engine died; its log says why."


def translate(error: Exception) -> TokenwireError:
    """Find the error of ours that says what vLLM's says, by the rules of vLLM's own HTTP server."""
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
            # Its own str() repeats the parameter and its value, which may be long.
            return InvalidRequest(Exception.__str__(error).strip(), param=getattr(error, "parameter", None))
        case NotImplementedError():
            return Unsupported(str(error))
        case ValueError() | TypeError() | OverflowError():
            return InvalidRequest(str(error).strip())
        case _:
            return EngineFailed(str(error) or type(error).__name__)


@contextmanager
def vllm_errors() -> Iterator[None]:
    """Translate what vLLM raises inside the block."""
    try:
        yield
    except TokenwireError:
        raise
    except Exception as error:
        raise translate(error) from error
