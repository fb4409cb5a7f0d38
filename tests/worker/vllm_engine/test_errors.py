"""vLLM's exceptions are translated to errors for clients."""

import pytest

pytestmark = pytest.mark.engine


def test_a_parameter_is_named_once() -> None:
    """The message is vLLM's own, without the parameter and the value that its str() appends; these may be long."""
    from vllm.exceptions import VLLMValidationError

    from tokenwire.worker.vllm_engine.errors import translate

    error = translate(VLLMValidationError("bad_words must be few.", parameter="bad_words", value=["x"] * 1000))

    assert (error.message, error.param) == ("bad_words must be few.", "bad_words")


def test_a_message_is_stripped() -> None:
    """Errors of grammars have several lines, without trailing whitespace."""
    from tokenwire.worker.vllm_engine.errors import translate

    assert translate(ValueError("Grammar error:\n  ^\n")).message == "Grammar error:\n  ^"


def test_no_message_tells_where_an_object_is() -> None:
    """Pillow's name those of the files that they cannot read; an error without a text has its name."""
    from tokenwire.worker.vllm_engine.errors import translate

    given = ValueError("cannot identify image file <_io.BytesIO object at 0x7fd030a13790>")
    assert translate(given).message == "cannot identify image file <_io.BytesIO object>"
    assert translate(ValueError("\x1b[1mWeights only\x1b[0m load failed")).message == "Weights only load failed"
    assert translate(KeyError()).message == "KeyError"
