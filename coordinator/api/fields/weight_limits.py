"""Fields that limit how old the weights of a reply's tokens may be."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.errors import InvalidRequest
from tokenwire.protocol.weight_limits import WeightLimits

_VERSION, _LAG = LIMIT_NAMES = ("min_weight_version", "max_weight_lag")
_MOST_LAG = 2**31 - 1
_MOST_VERSION_CHARS = 512


def checked_lag(value: object, param: str = _LAG) -> int | None:
    """Return a number of versions. Raises InvalidRequest."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_LAG:
        shown = f"{value!r}"[:100]
        raise InvalidRequest(f"`{param}` must be a whole number from 0 to {_MOST_LAG}, got {shown}.", param=param)
    return value


def checked_version(value: object, param: str = _VERSION) -> str | None:
    """Return the label of weights. Raises InvalidRequest."""
    if value is None:
        return None
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= _MOST_VERSION_CHARS:
        raise InvalidRequest(
            f"`{param}` must be the label of a weight version: 1 to {_MOST_VERSION_CHARS} printable characters.",
            param=param,
        )
    return value


def named_limits(fields: Mapping[str, Any], prefix: str = "") -> WeightLimits | None:
    """Return the limits among some fields, whose names in errors begin with a prefix. Raises InvalidRequest."""
    version = checked_version(fields.get(_VERSION), f"{prefix}{_VERSION}")
    lag = checked_lag(fields.get(_LAG), f"{prefix}{_LAG}")
    return None if version is None and lag is None else WeightLimits(version, lag)


class WeightLimitFields(RequestModel):
    """How old the weights of a reply's tokens may be."""

    min_weight_version: Annotated[str | None, Field(min_length=1), BeforeValidator(checked_version)] = None
    """The label of the oldest version."""
    max_weight_lag: Annotated[int | None, Field(ge=0, le=_MOST_LAG), BeforeValidator(checked_lag)] = None
    """How many newer versions there may be."""

    def weight_limits(self, defaults: WeightLimits | None) -> WeightLimits | None:
        """Return the limits, and those of the defaults where there are none. Raises InvalidRequest."""
        if self.min_weight_version is None and self.max_weight_lag is None:
            return defaults
        return WeightLimits(self.min_weight_version, self.max_weight_lag).over(defaults)
