"""Loads OpenTelemetry, where it is wanted."""

from typing import TYPE_CHECKING

from tokenwire.errors import InvalidRequest

if TYPE_CHECKING:
    from tokenwire.coordinator.observability.tracing import Tracing


def open_tracing(endpoint: str | None) -> "Tracing | None":
    """Return a listener that sends spans there; None where nobody wants any. Raises InvalidRequest."""
    if endpoint is None:
        return None
    try:
        from tokenwire.coordinator.observability.tracing import Tracing, otlp_exporter
    except ImportError as error:
        raise InvalidRequest("--otlp-traces-endpoint needs OpenTelemetry: pip install 'tokenwire[otel]'") from error
    return Tracing(otlp_exporter(endpoint))
