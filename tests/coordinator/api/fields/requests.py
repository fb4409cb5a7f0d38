"""Bodies with fields that several routes share."""

from typing import Any

from tokenwire.coordinator.api.fields.common import RequestFields


def request_fields(**fields: Any) -> RequestFields:
    """Parse a body."""
    return RequestFields.model_validate(fields)
