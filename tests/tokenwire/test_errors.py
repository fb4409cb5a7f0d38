"""The error hierarchy."""

import grpc
import pytest

from tokenwire import errors
from tokenwire.v1 import inference_pb2 as pb


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        (errors.InvalidRequest, 400, grpc.StatusCode.INVALID_ARGUMENT),
        (errors.NotFound, 404, grpc.StatusCode.NOT_FOUND),
        (errors.Forbidden, 403, grpc.StatusCode.PERMISSION_DENIED),
        (errors.TooLarge, 413, grpc.StatusCode.INVALID_ARGUMENT),
        (errors.UnsupportedCoding, 415, grpc.StatusCode.INVALID_ARGUMENT),
        (errors.Unsupported, 501, grpc.StatusCode.UNIMPLEMENTED),
        (errors.Overloaded, 429, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (errors.Unavailable, 503, grpc.StatusCode.UNAVAILABLE),
        (errors.WorkerDraining, 503, grpc.StatusCode.UNAVAILABLE),
        (errors.WorkerLost, 503, grpc.StatusCode.UNAVAILABLE),
        (errors.DeadlineExceeded, 504, grpc.StatusCode.DEADLINE_EXCEEDED),
        (errors.EngineFailed, 500, grpc.StatusCode.INTERNAL),
    ],
)
def test_every_error_has_its_codes(kind: type[errors.TokenwireError], status: int, code: grpc.StatusCode) -> None:
    """HTTP status and gRPC code are part of the contract."""
    assert (kind.http_status, kind.grpc_code) == (status, code)


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidRequest("wrong", param="prompt"),
        errors.Overloaded("full"),
        errors.WorkerDraining("draining"),
        errors.Unavailable("dead"),
    ],
)
def test_errors_survive_the_protocol(error: errors.TokenwireError) -> None:
    """A refusal is converted back to its error."""
    refusal = pb.Refusal(code=error.refusal_code, message=error.message, param=error.param)

    again = errors.from_refusal(refusal)

    assert type(again) is type(error)
    assert (again.message, again.param) == (error.message, error.param)


def test_long_messages_are_cut() -> None:
    """They quote clients' input, and go into responses, logs and gRPC trailers."""
    error = errors.InvalidRequest("wrong: " + "x" * 1_000_000, param="logit_bias." + "y" * 1_000_000)

    assert len(error.message) == len(str(error)) == errors.MAX_MESSAGE_CHARS
    assert (error.message[:8], error.message[-4:]) == ("wrong: x", "x...")
    assert len(error.param or "") == errors.MAX_PARAM_CHARS
