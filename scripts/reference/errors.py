"""docs/reference/errors.md: the table of tokenwire/errors.py, with what to do about each."""

from collections.abc import Iterator

from scripts.reference.markdown import page as joined
from scripts.reference.markdown import table
from tokenwire import errors
from tokenwire.cli.coordinator import COORDINATOR_OPTIONS
from tokenwire.coordinator.api.errors import anthropic_error
from tokenwire.coordinator.http.content_coding import ACCEPTED_CODINGS, CODING_HEADER
from tokenwire.errors import TokenwireError

_INTRODUCTION = """# Errors

*For those who write a client, or read its log.* An error is `{"error": {"message", "type", "param", "code"}}`, where
`param` names the field; on `/v1/messages` it is `{"type": "error", "error": {"type", "message"}}`. `make reference`
generates the tables from `tokenwire/errors.py`.

A response starts with its first token, so an error before that is a status. After it, the error is an event in the
stream, `data: {"error": …}`, followed by `data: [DONE]`; on `/v1/messages` it is `event: error`."""


def _flag(name: str, unit: str = "") -> str:
    """Return an option with its default."""
    return f"`{name}` ({COORDINATOR_OPTIONS[name].default:g}{unit})"


_DO: dict[type[TokenwireError], str] = {
    errors.InvalidRequest: "Change the field that `param` names: type, range, length, vocabulary, template.",
    errors.Malformed: "Change the field that `param` names; the message has a line for each mistake.",
    errors.PromptTooLong: "Send fewer messages, or shorter ones: the message has both lengths.",
    errors.PreviousNotFound: "Send the whole conversation instead. Its `code` is `previous_response_not_found`; see "
    "[stored responses](../guides/stored-responses.md).",
    errors.NotFound: f"Look at `/v1/models`. A model without workers is unknown after {_flag('--model-linger', ' s')}.",
    errors.Forbidden: "Use another key, or the option that the message names.",
    errors.Unauthorized: "Send a [key](../guides/tenants.md); on admin routes the admin key.",
    errors.TooLarge: f"Send less, or raise {_flag('--max-body-mb')}.",
    errors.UnsupportedCoding: f"Compress it with one of {ACCEPTED_CODINGS}, or not at all: `{CODING_HEADER}`.",
    errors.PoisonRequest: "Do not send it again: it is a [poison request](../explanation/failure.md#poison-requests).",
    errors.Unsupported: "Use another engine, or another route that the message names.",
    errors.MediaUnavailable: "See whether anybody can fetch [the picture](../guides/images.md), or send it as data.",
    errors.MediaMissing: "Nothing: coordinators put the media and submit the request again.",
    errors.Superseded: "Read the state (`GET /v1/rl/state`), and repeat the operation if it is still wanted.",
    errors.CannotAdopt: "Repeat the update for all workers, or restart this one.",
    errors.Overloaded: "Retry after the seconds in `Retry-After`. A [queue](../explanation/scheduling.md#the-queue) "
    "or a [quota](../guides/tenants.md) is full: the message has the limit, and where it is set.",
    errors.Unavailable: "Retry after the seconds in `Retry-After`; `/health` has the reason. No worker was ready "
    "or had capacity within `--queue-timeout`.",
    errors.WorkerDraining: "Nothing: coordinators send the request to another worker. Without one, as above.",
    errors.WorkerLost: "Retry after the seconds in `Retry-After`. The reply could not be "
    "[resumed](../explanation/failure.md#lost-workers).",
    errors.RevisionLost: "Retry: a worker of [another revision](../explanation/failure.md#only-by-the-same-model) "
    "begins a reply of its own.",
    errors.EngineFailed: "Retry once; then read the worker's log.",
    errors.ProtocolError: "Upgrade the older side; then read the logs of both.",
    errors.DeadlineExceeded: "Allow more time: `X-Request-Timeout`, `--request-timeout`.",
    errors.FleetFailed: "Read `error.workers`; the workers that failed are [reconciled](../guides/weights.md#results).",
}
_HTTP = [
    ("405", "MethodNotAllowedError", "the route has other methods", "See [the routes](http.md)."),
    (
        "408",
        "RequestTimeoutError",
        "headers or body were not received in time",
        f"Send faster, or raise {_flag('--head-timeout', ' s')}.",
    ),
    (
        "431",
        "RequestHeaderFieldsTooLargeError",
        f"headers are larger than {_flag('--max-head-kb')}, or more than 256",
        "Send fewer.",
    ),
]
_TIMEOUTS = """## Timeouts

A client may limit the whole time of a request: `X-Request-Timeout: 30`. `--request-timeout` is the maximum for all (no
limit by default). The time counts from the arrival of the request: reading its body, rendering its prompt and queueing
are included, and whatever is waited for meanwhile: other requests, a picture's server, a worker that does not say what
a picture is, a model whose first worker starts. Work that has begun in a thread is finished first. Operations on
workers go on. Timeouts that SDKs announce (`x-stainless-timeout`) are ignored: a client that gives up disconnects,
which is detected at once."""


def page() -> str:
    """Return the page."""
    kinds = sorted(_kinds(TokenwireError), key=lambda kind: kind.http_status)
    head = ("status", "`type`", "on `/v1/messages`", "gRPC", "when", "what to do")
    return joined(
        _INTRODUCTION,
        "## Requests",
        table(head, map(_row, kinds)),
        "## Connections",
        table(("status", "`type`", "when", "what to do"), _HTTP),
        _TIMEOUTS,
    )


def _kinds(base: type[TokenwireError]) -> Iterator[type[TokenwireError]]:
    for kind in base.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from _kinds(kind)


def _row(kind: type[TokenwireError]) -> tuple[str, ...]:
    when = (kind.__doc__ or "").split("\n")[0].rstrip(".")
    anthropic = anthropic_error("", "", kind.http_status)["error"]["type"]
    status = str(kind.http_status)
    return status, f"`{kind.openai_type}`", f"`{anthropic}`", f"`{kind.grpc_code.name}`", when, _DO[kind]
