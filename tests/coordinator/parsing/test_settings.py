"""Which parsers to use."""

import pytest

from tokenwire.coordinator.parsing.settings import ModelFacts, ParserSettings


@pytest.mark.parametrize(
    ("facts", "settings", "kind"),
    [
        (ModelFacts(), ParserSettings("hermes"), None),
        (ModelFacts(), ParserSettings(None, "openai_gptoss"), "gpt_oss"),
        (ModelFacts(), ParserSettings("kimi_k2"), "kimi_k2"),
        (ModelFacts(model_type="other"), ParserSettings("openai"), "other"),
    ],
)
def test_parsers_imply_the_model_type_if_it_is_unknown(
    facts: ModelFacts, settings: ParserSettings, kind: str | None
) -> None:
    """The model's own type takes precedence."""
    assert facts.kind(settings) == kind


@pytest.mark.parametrize(
    ("settings", "parses"),
    [
        (ParserSettings(), False),
        (ParserSettings("hermes"), False),
        (ParserSettings("hermes", enable_auto_tool_choice=True), True),
        (ParserSettings(None, "qwen3"), True),
    ],
)
def test_a_tool_parser_needs_automatic_choice(settings: ParserSettings, parses: bool) -> None:
    """Without it vLLM is not even loaded."""
    assert settings.parses is parses


@pytest.mark.parametrize(
    ("settings", "whole"),
    [
        (ParserSettings(None, "qwen3"), False),
        (ParserSettings(None, "qwen3", load_whole_vllm=True), True),
        (ParserSettings(None, "qwen3", tool_parser_plugin="mine.py"), True),
        (ParserSettings(None, "qwen3", reasoning_parser_plugin="mine.py"), True),
    ],
)
def test_plugins_get_all_of_vllm(settings: ParserSettings, whole: bool) -> None:
    """Their code may import anything; vLLM's own parsers are known to need little."""
    assert settings.loads_whole_vllm is whole
