"""Schemas of errors in the OpenAPI document."""

from typing import Any, Literal

from pydantic import BaseModel, Field


class ErrorInfo(BaseModel):
    """An error in OpenAI's format."""

    message: str
    type: str = Field(examples=["BadRequestError"])
    param: str | None = Field(description="The invalid field of the request, if any.")
    code: int | str = Field(description="The HTTP status, or OpenAI's code if clients match it.")
    workers: list[dict[str, Any]] | None = Field(
        default=None, description="The result of each worker, for an operation that failed on some."
    )


class Error(BaseModel):
    """An error."""

    error: ErrorInfo


class AnthropicErrorInfo(BaseModel):
    """An error in Anthropic's format."""

    type: str = Field(examples=["invalid_request_error"])
    message: str


class AnthropicError(BaseModel):
    """An error of the Messages API."""

    type: Literal["error"]
    error: AnthropicErrorInfo
