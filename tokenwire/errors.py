"""The error hierarchy of coordinator and worker, with HTTP status, gRPC code and OpenAI type.

TokenwireError
├── InvalidRequest       the request is invalid on any worker
│   ├── Malformed        a field has the wrong type or structure
│   ├── PromptTooLong    its prompt exceeds the model's context
│   ├── NotFound         it refers to something that does not exist
│   ├── PreviousNotFound it continues a response that is not stored
│   ├── Forbidden        it is not permitted, for anyone or for this client
│   ├── Unauthorized     it lacks a valid key
│   ├── TooLarge         its body exceeds the limit
│   ├── UnsupportedCoding its body is compressed in another way
│   ├── MediaUnavailable a picture of it cannot be fetched
│   └── PoisonRequest    workers died when they started it
├── MediaMissing         the worker lacks pictures of it
├── Superseded           a newer operation was applied first
├── CannotAdopt          a worker cannot converge to the desired state
├── Unsupported          not supported by this engine
├── Overloaded           a queue is full; try again later
├── Unavailable          no worker can take it now; try again soon
│   ├── WorkerDraining   this worker refuses new requests
│   ├── WorkerLost       the worker that had it was lost
│   └── RevisionLost     no worker is left that could continue it
├── EngineFailed         the engine failed on it
├── ProtocolError        the peer violated the protocol
├── DeadlineExceeded     it exceeded its deadline
└── FleetFailed          an operation failed on some workers
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import grpc

from tokenwire.v1 import inference_pb2 as pb

MAX_MESSAGE_CHARS = 4096
"""Limit of messages, which may quote client input, and appear in responses, logs and gRPC trailers."""
MAX_PARAM_CHARS = 256


class TokenwireError(Exception):
    """Base of all errors that a client may see; the message is written for the client, and truncated if too long."""

    http_status: ClassVar[int] = 500
    grpc_code: ClassVar[grpc.StatusCode] = grpc.StatusCode.INTERNAL
    refusal_code: ClassVar["pb.RefusalCode"] = pb.REFUSAL_CODE_UNAVAILABLE
    openai_type: ClassVar[str] = "InternalServerError"
    openai_code: ClassVar[str | None] = None
    """OpenAI's code of it, which clients may match; None: the status stands in its place, as in vLLM."""

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        self.message = _cut(message, MAX_MESSAGE_CHARS)
        super().__init__(self.message)
        self.param = None if param is None else _cut(param, MAX_PARAM_CHARS)
        self.retry_after_s = retry_after_s


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


class InvalidRequest(TokenwireError):
    """The request is invalid on any worker."""

    http_status = 400
    grpc_code = grpc.StatusCode.INVALID_ARGUMENT
    refusal_code = pb.REFUSAL_CODE_INVALID
    openai_type = "BadRequestError"


class Malformed(InvalidRequest):
    """A field of the request violates its schema."""

    openai_type = "Bad Request"


class PromptTooLong(InvalidRequest):
    """The request's prompt, of a number of tokens, exceeds the model's context."""

    def __init__(self, length: int, limit: int, how_exact: str = "") -> None:
        # Clients recognize this error by one of a dozen phrases, all of which are in this message.
        and_reply = "" if length > limit else " and a reply needs at least 1 more"
        super().__init__(
            f"This model's maximum context length is {limit} tokens. However, your prompt contains {how_exact}{length} "
            f"input tokens{and_reply}, which is longer than the maximum model length of {limit}. "
            "Please reduce the length of the messages.",
            param="input_tokens",
        )


class NotFound(InvalidRequest):
    """The request refers to something that does not exist."""

    http_status = 404
    grpc_code = grpc.StatusCode.NOT_FOUND
    openai_type = "NotFoundError"


class PreviousNotFound(InvalidRequest):
    """The request continues a response that is not stored."""

    openai_code = "previous_response_not_found"


class Forbidden(InvalidRequest):
    """The request is not permitted, for anyone or for this client."""

    http_status = 403
    grpc_code = grpc.StatusCode.PERMISSION_DENIED
    openai_type = "PermissionDeniedError"


class Unauthorized(InvalidRequest):
    """The request lacks a valid key."""

    http_status = 401
    grpc_code = grpc.StatusCode.UNAUTHENTICATED
    openai_type = "AuthenticationError"


class TooLarge(InvalidRequest):
    """The request's body exceeds the limit."""

    http_status = 413
    openai_type = "RequestEntityTooLargeError"


class UnsupportedCoding(InvalidRequest):
    """The request's body is compressed in a way that this server cannot read."""

    http_status = 415
    openai_type = "UnsupportedMediaTypeError"


class PoisonRequest(InvalidRequest):
    """Workers died when they started the request. Its status is one that clients do not retry."""

    http_status = 422
    grpc_code = grpc.StatusCode.FAILED_PRECONDITION
    openai_type = "UnprocessableEntityError"


class MediaUnavailable(InvalidRequest):
    """A picture of the request could not be fetched. Its status is one that clients do not retry."""

    http_status = 422
    openai_type = "UnprocessableEntityError"


class MediaMissing(TokenwireError):
    """The worker does not have all media of the request; with them it may be submitted again."""

    refusal_code = pb.REFUSAL_CODE_MEDIA_MISSING

    def __init__(self, missing: Sequence[bytes]) -> None:
        super().__init__(f"The worker does not have {len(missing)} of the request's media.")
        self.missing = missing
        """Their digests."""


class Unsupported(TokenwireError):
    """Not supported by this engine."""

    http_status = 501
    grpc_code = grpc.StatusCode.UNIMPLEMENTED
    refusal_code = pb.REFUSAL_CODE_INVALID
    openai_type = "NotImplementedError"


class Superseded(TokenwireError):
    """A newer operation was applied first: nothing was done."""

    http_status = 409
    grpc_code = grpc.StatusCode.ABORTED
    refusal_code = pb.REFUSAL_CODE_INVALID
    openai_type = "ConflictError"


class CannotAdopt(TokenwireError):
    """A worker cannot converge to the desired state of its model."""

    http_status = 409
    grpc_code = grpc.StatusCode.FAILED_PRECONDITION
    refusal_code = pb.REFUSAL_CODE_INVALID
    openai_type = "ConflictError"


class Overloaded(TokenwireError):
    """A queue is full; try again later."""

    http_status = 429
    grpc_code = grpc.StatusCode.RESOURCE_EXHAUSTED
    refusal_code = pb.REFUSAL_CODE_OVERLOADED
    openai_type = "RateLimitError"


class Unavailable(TokenwireError):
    """No worker can take the request now; try again soon."""

    http_status = 503
    grpc_code = grpc.StatusCode.UNAVAILABLE
    refusal_code = pb.REFUSAL_CODE_UNAVAILABLE
    openai_type = "ServiceUnavailableError"


class WorkerDraining(Unavailable):
    """The worker refuses new requests; another one may take them."""

    refusal_code = pb.REFUSAL_CODE_DRAINING


class WorkerLost(Unavailable):
    """The worker that had the request was lost."""


class RevisionLost(Unavailable):
    """The last worker of the reply's revision is gone, and others would continue it differently; or it is silent."""


class EngineFailed(TokenwireError):
    """The engine failed on the request."""


class ProtocolError(TokenwireError):
    """The peer violated the protocol; its session is not reliable any more."""

    http_status = 502
    openai_type = "BadGatewayError"


class DeadlineExceeded(TokenwireError):
    """The request exceeded the client's or the server's deadline."""

    http_status = 504
    grpc_code = grpc.StatusCode.DEADLINE_EXCEEDED
    openai_type = "GatewayTimeoutError"


class FleetFailed(TokenwireError):
    """An operation on all workers of a model failed on some of them and was applied by the others."""

    http_status = 502
    openai_type = "BadGatewayError"

    def __init__(self, message: str, workers: Sequence[Mapping[str, str]], stage: str) -> None:
        super().__init__(message)
        self.workers = workers
        """Result of each: worker (its address), status (ok or error) and, with errors, message."""
        self.stage = stage
        """The step that failed."""


_BY_REFUSAL: dict[int, type[TokenwireError]] = {
    pb.REFUSAL_CODE_INVALID: InvalidRequest,
    pb.REFUSAL_CODE_OVERLOADED: Overloaded,
    pb.REFUSAL_CODE_DRAINING: WorkerDraining,
    pb.REFUSAL_CODE_UNAVAILABLE: Unavailable,
    pb.REFUSAL_CODE_MEDIA_MISSING: Unavailable,  # though it was put more than once
}


def from_refusal(refusal: pb.Refusal) -> TokenwireError:
    """Return the error of a worker's refusal."""
    kind = _BY_REFUSAL.get(refusal.code, EngineFailed)
    return kind(refusal.message, param=refusal.param if refusal.HasField("param") else None)


def reply_error(error: Exception) -> TokenwireError:
    """Return the error of a reply that could not be processed: never WorkerLost, which would cause a failover."""
    if isinstance(error, EngineFailed | ProtocolError):
        return error
    return EngineFailed(f"The reply could not be processed: {error}")


def from_status(code: grpc.StatusCode, message: str) -> TokenwireError:
    """Return the error of a failed control call."""
    kinds = (InvalidRequest, NotFound, Unsupported, Superseded, CannotAdopt, Overloaded, Unavailable)
    kind = next((kind for kind in kinds if kind.grpc_code is code), EngineFailed)
    return kind(message)


def mib(size_bytes: float) -> str:
    """Return a size as messages have it."""
    return f"{size_bytes / 2**20:.4g} MiB"


def error_body(message: str, kind: str, code: int | str, param: str | None = None) -> dict[str, Any]:
    """Return OpenAI's error object."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
