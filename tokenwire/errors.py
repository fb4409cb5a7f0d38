"""One tree of errors for both halves, each with its HTTP status, gRPC code and OpenAI type.

TokenwireError
├── InvalidRequest       the request is wrong, everywhere and always
│   ├── Malformed        a part of it has a wrong shape
│   ├── NotFound         it names something that does not exist
│   ├── Forbidden        it asks for what nobody may have here
│   ├── Unauthorized     it lacks a key
│   ├── TooLarge         its body is over the limit
│   └── DeadlyRequest    workers died when they began with it
├── Superseded           a newer operation came first
├── CannotAdopt          a worker cannot be made like the others
├── Unsupported          known, but not possible on this engine
├── Overloaded           a queue is full; try again later
├── Unavailable          nobody can take it now; try again soon
│   ├── WorkerDraining   this worker takes no new requests
│   └── WorkerLost       the worker that had it is gone
├── EngineFailed         the engine broke on it
├── ProtocolError        the other half broke the rules of the wire
├── DeadlineExceeded     it took longer than it was given
└── FleetFailed          not every worker did it
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import grpc

from tokenwire.v1 import inference_pb2 as pb

MAX_MESSAGE_CHARS = 4096
"""Of a message, which may quote what a client sent; it goes into answers, logs and gRPC's trailers."""
MAX_PARAM_CHARS = 256


class TokenwireError(Exception):
    """Base of all errors that a client may see; the message is written for the client, and cut where it is too long."""

    http_status: ClassVar[int] = 500
    grpc_code: ClassVar[grpc.StatusCode] = grpc.StatusCode.INTERNAL
    refusal_code: ClassVar["pb.RefusalCode"] = pb.REFUSAL_CODE_UNAVAILABLE
    openai_type: ClassVar[str] = "InternalServerError"

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        self.message = _cut(message, MAX_MESSAGE_CHARS)
        super().__init__(self.message)
        self.param = None if param is None else _cut(param, MAX_PARAM_CHARS)
        self.retry_after_s = retry_after_s


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


class InvalidRequest(TokenwireError):
    """The request is wrong, everywhere and always."""

    http_status = 400
    grpc_code = grpc.StatusCode.INVALID_ARGUMENT
    refusal_code = pb.REFUSAL_CODE_INVALID
    openai_type = "BadRequestError"


class Malformed(InvalidRequest):
    """A part of the request has a wrong shape: what a schema would refuse."""

    openai_type = "Bad Request"


class NotFound(InvalidRequest):
    """The request names something that does not exist."""

    http_status = 404
    grpc_code = grpc.StatusCode.NOT_FOUND
    openai_type = "NotFoundError"


class Forbidden(InvalidRequest):
    """The request asks for what nobody may have here, or not this client."""

    http_status = 403
    grpc_code = grpc.StatusCode.PERMISSION_DENIED
    openai_type = "PermissionDeniedError"


class Unauthorized(InvalidRequest):
    """The request lacks the key that it needs."""

    http_status = 401
    grpc_code = grpc.StatusCode.UNAUTHENTICATED
    openai_type = "AuthenticationError"


class TooLarge(InvalidRequest):
    """The request's body is over the limit."""

    http_status = 413
    openai_type = "RequestEntityTooLargeError"


class DeadlyRequest(InvalidRequest):
    """Workers died when they began with the request. With a status that clients do not try again after."""

    http_status = 422
    grpc_code = grpc.StatusCode.FAILED_PRECONDITION
    openai_type = "UnprocessableEntityError"


class Unsupported(TokenwireError):
    """Known, but not possible on this engine."""

    http_status = 501
    grpc_code = grpc.StatusCode.UNIMPLEMENTED
    refusal_code = pb.REFUSAL_CODE_INVALID
    openai_type = "NotImplementedError"


class Superseded(TokenwireError):
    """An operation came after one that was begun later: nothing was done."""

    http_status = 409
    grpc_code = grpc.StatusCode.ABORTED
    refusal_code = pb.REFUSAL_CODE_INVALID
    openai_type = "ConflictError"


class CannotAdopt(TokenwireError):
    """A worker cannot be made like the others of its model."""

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
    """Nobody can take the request now; try again soon."""

    http_status = 503
    grpc_code = grpc.StatusCode.UNAVAILABLE
    refusal_code = pb.REFUSAL_CODE_UNAVAILABLE
    openai_type = "ServiceUnavailableError"


class WorkerDraining(Unavailable):
    """The worker takes no new requests; another one will."""

    refusal_code = pb.REFUSAL_CODE_DRAINING


class WorkerLost(Unavailable):
    """The worker that had the request is gone."""


class EngineFailed(TokenwireError):
    """The engine broke on the request."""


class ProtocolError(TokenwireError):
    """The other half sent what it must never send; nothing that it says can be relied on any more."""

    http_status = 502
    openai_type = "BadGatewayError"


class DeadlineExceeded(TokenwireError):
    """The request took longer than its client or the server gave it."""

    http_status = 504
    grpc_code = grpc.StatusCode.DEADLINE_EXCEEDED
    openai_type = "GatewayTimeoutError"


class FleetFailed(TokenwireError):
    """An operation on all workers of a model failed on some of them; the others did it."""

    http_status = 502
    openai_type = "BadGatewayError"

    def __init__(self, message: str, workers: Sequence[Mapping[str, str]], stage: str) -> None:
        super().__init__(message)
        self.workers = workers
        """What became of each: worker (its address), status (ok or error) and, with errors, message."""
        self.stage = stage
        """The step that failed."""


_BY_REFUSAL: dict[int, type[TokenwireError]] = {
    pb.REFUSAL_CODE_INVALID: InvalidRequest,
    pb.REFUSAL_CODE_OVERLOADED: Overloaded,
    pb.REFUSAL_CODE_DRAINING: WorkerDraining,
    pb.REFUSAL_CODE_UNAVAILABLE: Unavailable,
}


def from_refusal(refusal: pb.Refusal) -> TokenwireError:
    """Rebuild the error that a worker put into a refusal."""
    kind = _BY_REFUSAL.get(refusal.code, EngineFailed)
    return kind(refusal.message, param=refusal.param if refusal.HasField("param") else None)


def reply_error(error: Exception) -> EngineFailed:
    """Say what becomes of a reply that could not be processed: never a loss, which another worker could make good."""
    return error if isinstance(error, EngineFailed) else EngineFailed(f"The reply could not be processed: {error}")


def from_status(code: grpc.StatusCode, message: str) -> TokenwireError:
    """Rebuild the error that a control call ended with."""
    kinds = (InvalidRequest, NotFound, Unsupported, Superseded, CannotAdopt, Overloaded, Unavailable)
    kind = next((kind for kind in kinds if kind.grpc_code is code), EngineFailed)
    return kind(message)


def error_body(message: str, kind: str, code: int, param: str | None = None) -> dict[str, Any]:
    """Return OpenAI's error object."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
