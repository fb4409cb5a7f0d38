"""Errors, as the OpenAPI document describes them."""

from typing import Any, Literal

from pydantic import BaseModel, Field


class ErrorInfo(BaseModel):
    """What went wrong, in OpenAI's shape."""

    message: str
    type: str = Field(examples=["BadRequestError"])
    param: str | None = Field(description="The request's field that is at fault, where there is one.")
    code: int = Field(description="The HTTP status.")
    workers: list[dict[str, Any]] | None = Field(
        default=None, description="What became of each worker, where an operation on several failed on some."
    )


class Error(BaseModel):
    """An error."""

    error: ErrorInfo


class AnthropicErrorInfo(BaseModel):
    """What went wrong, in Anthropic's words."""

    type: str = Field(examples=["invalid_request_error"])
    message: str


class AnthropicError(BaseModel):
    """An error of the Messages API."""

    type: Literal["error"]
    error: AnthropicErrorInfo
