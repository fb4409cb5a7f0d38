"""vLLM's exceptions in the words that clients see."""

import pytest

pytestmark = pytest.mark.engine


def test_a_parameter_is_named_once() -> None:
    """The message is vLLM's own, without the parameter and the value that its str() appends; these may be long."""
    from vllm.exceptions import VLLMValidationError

    from tokenwire.worker.vllm_engine.errors import translate

    error = translate(VLLMValidationError("bad_words must be few.", parameter="bad_words", value=["x"] * 1000))

    assert (error.message, error.param) == ("bad_words must be few.", "bad_words")


def test_a_message_ends_with_its_words() -> None:
    """Grammars are refused with several lines, behind which nothing stays."""
    from tokenwire.worker.vllm_engine.errors import translate

    assert translate(ValueError("Grammar error:\n  ^\n")).message == "Grammar error:\n  ^"
