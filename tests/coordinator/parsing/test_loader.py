"""Loading parsers: imports only if configured, and errors for missing packages and unknown names."""

import base64
import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from tokenwire.coordinator.parsing import grammar
from tokenwire.coordinator.parsing.folders import folder_of, harmony_vocabulary, tiktoken_file
from tokenwire.coordinator.parsing.loader import import_parsers, load_parsers
from tokenwire.coordinator.parsing.message import ParserUnusable
from tokenwire.coordinator.parsing.rules import NoParsers
from tokenwire.coordinator.parsing.settings import ModelFacts, ParserSettings

# In another process, since this one may have vLLM.
_WITHOUT_VLLM = """
import sys
sys.modules["vllm"] = None
from tokenwire.coordinator.parsing.loader import import_parsers
from tokenwire.coordinator.parsing.settings import ParserSettings
import_parsers(ParserSettings(tool_call_parser="hermes"))
assert not {"torch", "transformers"} & set(sys.modules)
import_parsers(ParserSettings(tool_call_parser="hermes", enable_auto_tool_choice=True))
"""


def test_without_parsers_nothing_is_loaded() -> None:
    """A tool parser counts only with automatic choice."""
    assert isinstance(load_parsers(ParserSettings(), ModelFacts(), {}), NoParsers)
    assert isinstance(load_parsers(ParserSettings("hermes"), ModelFacts(), {}), NoParsers)


def test_a_missing_vllm_is_reported_with_the_command_that_installs_it() -> None:
    """vLLM is not imported without parsers."""
    ran = subprocess.run([sys.executable, "-c", _WITHOUT_VLLM], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "ParserUnusable" in ran.stderr.splitlines()[-1]
    assert "pip install 'tokenwire[parsers]'" in ran.stderr.splitlines()[-1]


def test_a_missing_module_of_tokenwire_is_not_taken_for_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """No installation of parsers would mend it."""
    monkeypatch.setitem(sys.modules, "tokenwire.coordinator.parsing.vllm_parsers", None)
    with pytest.raises(ModuleNotFoundError, match="vllm_parsers"):
        import_parsers(ParserSettings(reasoning_parser="qwen3"))


@pytest.mark.engine
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("settings", [ParserSettings("hermmes", None, True), ParserSettings(None, "qwen33")])
def test_unknown_names_list_the_known_ones(settings: ParserSettings) -> None:
    """For both kinds of parsers."""
    pytest.importorskip("vllm")
    known = "hermes, .*qwen3_coder" if settings.tool_call_parser else "deepseek_r1, .*qwen3"
    with pytest.raises(ParserUnusable, match=f"unknown parser. vLLM has: .*{known}"):
        import_parsers(settings)


@pytest.mark.engine
@pytest.mark.filterwarnings("ignore")
def test_validation_stops_at_the_first_invalid_message() -> None:
    """There is one error for each kind of message, however many messages are invalid."""
    pytest.importorskip("vllm")
    from tokenwire.coordinator.parsing.vllm_parsers import FailFastChatRequest

    with pytest.raises(ValidationError) as wrong:
        FailFastChatRequest.model_validate({"messages": [{}] * 500, "tools": [{}] * 500})

    assert wrong.value.error_count() < 30


def test_files_are_written_inside_their_folder() -> None:
    """A worker's file names cannot lead out of it, and the folder is removed."""
    with folder_of({"a/b.jinja": b"x"}) as folder:
        assert os.path.exists(f"{folder}/a/b.jinja")
    assert not os.path.exists(folder)
    with pytest.raises(ParserUnusable, match="outside"), folder_of({"../x": b""}):
        pass


def test_vocabularies_become_tiktoken_files() -> None:
    """Bytes in base64, by rank."""
    tokenizer = json.dumps({"model": {"vocab": {"Ġa": 1, "Ã©": 0}}}).encode()
    expected = [base64.b64encode("é".encode()) + b" 0", base64.b64encode(b" a") + b" 1", b""]
    assert tiktoken_file(tokenizer).split(b"\n") == expected
    with harmony_vocabulary({"tokenizer.json": tokenizer}):
        folder = os.environ["TIKTOKEN_ENCODINGS_BASE"]
        assert os.path.exists(f"{folder}/o200k_base.tiktoken")
    assert os.environ.get("TIKTOKEN_ENCODINGS_BASE") != folder


@pytest.mark.parametrize(
    ("fields", "kind", "value"),
    [
        ({"json": {"type": "object"}}, "json_schema", '{"type": "object"}'),
        ({"json": "{}"}, "json_schema", "{}"),
        ({"regex": "a+"}, "regex", "a+"),
        ({"grammar": "root ::= x"}, "grammar", "root ::= x"),
        ({"json_object": True}, "json_object", True),
        ({"structural_tag": "{}"}, "structural_tag", "{}"),
    ],
)
def test_grammars_are_converted_to_the_protocol(fields: dict[str, Any], kind: str, value: object) -> None:
    """Every kind, with its options."""
    message = grammar.to_wire(_params(**fields, whitespace_pattern=" ?"))
    assert message.WhichOneof("constraint") == kind
    assert getattr(message, kind) == value
    assert message.whitespace_pattern == " ?"


def test_choices_are_converted_to_the_protocol() -> None:
    """As a list of texts."""
    message = grammar.to_wire(_params(choice=["a", "b"]))
    assert list(message.choice.values) == ["a", "b"]
    assert not message.HasField("whitespace_pattern")


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


def _params(**fields: Any) -> Any:
    names = ("json", "regex", "choice", "grammar", "json_object", "structural_tag", "whitespace_pattern")
    flags = {"disable_any_whitespace": False, "disable_additional_properties": False}
    return SimpleNamespace(**{**dict.fromkeys(names), **flags, **fields})
