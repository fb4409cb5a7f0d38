"""Loads OpenTelemetry only if tracing is enabled."""

from typing import TYPE_CHECKING

from tokenwire.errors import InvalidRequest

if TYPE_CHECKING:
    from tokenwire.coordinator.observability.tracing import Tracing


def open_tracing(endpoint: str | None) -> "Tracing | None":
    """Return a listener that exports spans to an endpoint; None without one. Raises InvalidRequest."""
    if endpoint is None:
        return None
    try:
        from tokenwire.coordinator.observability.tracing import Tracing, otlp_exporter
    except ImportError as error:
        raise InvalidRequest("--otlp-traces-endpoint needs OpenTelemetry: pip install 'tokenwire[otel]'") from error
    return Tracing(otlp_exporter(endpoint))
