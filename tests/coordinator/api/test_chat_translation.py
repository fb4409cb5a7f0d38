"""Fields of other APIs pass to chat, and errors name the client's."""

import pytest

from tests.coordinator.api.responses.requests import responses_chat
from tokenwire.coordinator.api.api_request import InvalidBody
from tokenwire.coordinator.api.responses.request import responses_translator
from tokenwire.errors import InvalidRequest


def test_wrong_types_of_passed_fields_are_named() -> None:
    """Chat's own checks name the client's field."""
    with pytest.raises(InvalidBody) as raised:
        responses_chat(top_k="many")

    assert raised.value.problems[0]["loc"] == ("body", "top_k")


def test_what_is_passed_on_is_kept_once() -> None:
    """The body of another API is kept until its reply has been sent."""
    extra = {"vllm_xargs": {"a": "x"}, "unknown": [1]}

    chat = responses_translator().chat({"messages": [{"role": "user", "content": "hi"}]}, extra)

    assert chat.vllm_xargs == {"a": "x"}
    assert extra == {}


def test_errors_name_the_fields_of_this_api() -> None:
    """Chat's names of fields are replaced by the client's."""
    with pytest.raises(InvalidRequest) as raised, responses_translator().named():
        raise InvalidRequest("max_completion_tokens=9 is too much for `messages`.", param="max_completion_tokens")

    assert raised.value.param == "max_output_tokens"
    assert raised.value.message == "max_output_tokens=9 is too much for `input`."
