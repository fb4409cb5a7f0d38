"""The bodies of requests about sessions."""

from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, field_validator

from tokenwire.coordinator.api.api_request import LIMIT_OF_SESSION
from tokenwire.coordinator.api.fields.common import Identifier
from tokenwire.coordinator.api.fields.weight_limits import WeightLimitFields
from tokenwire.coordinator.api.json_text import json_bytes
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.errors import InvalidRequest

_MOST_METADATA_BYTES = 64 * 1024
_MOST_NAME_CHARS = 128


def _fits_path(value: str) -> str:
    if not value or "/" in value:
        raise InvalidRequest("`session_id` must have characters, and no slash.", param="session_id")
    if value in (".", ".."):
        raise InvalidRequest(f"`session_id` must not be {value!r}: clients resolve it in a path.", param="session_id")
    if LIMIT_OF_SESSION.search(value):
        raise InvalidRequest("`session_id` must have nothing like `;name=`, as limits have.", param="session_id")
    return value


def _label_fits_path(value: str | None) -> str | None:
    if value is not None and (not value.isascii() or "/" in value or ";" in value):
        message = "`min_weight_version` is in the URL of the session: it must be ASCII, without slash and semicolon."
        raise InvalidRequest(message, param="min_weight_version")
    return value


def _small(value: dict[str, Any] | None) -> dict[str, Any] | None:
    if value is not None and (size := len(json_bytes(value))) > _MOST_METADATA_BYTES:
        message = f"`metadata` has {size} bytes, more than {_MOST_METADATA_BYTES}."
        raise InvalidRequest(message, param="metadata")
    return value


class NewSession(WeightLimitFields):
    """A session to create; one that exists gets the metadata in addition. Limits are in the URL that is returned."""

    model_config = ConfigDict(extra="forbid")

    session_id: Annotated[Identifier, AfterValidator(_fits_path)] | None = None
    """Its id; a new one if there is none."""
    metadata: Annotated[dict[str, Any] | None, AfterValidator(_small)] = None

    @field_validator("min_weight_version")
    @classmethod
    def _in_a_path(cls, value: str | None) -> str | None:
        return _label_fits_path(value)


class RewardBody(RequestModel):
    """A reward for a session or for one of its nodes, in place of an earlier one of its name."""

    model_config = ConfigDict(extra="forbid")

    value: Annotated[float, Field(allow_inf_nan=False, strict=True)]
    name: Annotated[str, Field(min_length=1, max_length=_MOST_NAME_CHARS)] = "reward"
