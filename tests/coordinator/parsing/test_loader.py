"""Loading parsers: imports only if configured, and errors for missing packages and unknown names."""

import re
import subprocess
import sys

import pytest
from pydantic import ValidationError

from tokenwire.coordinator.parsing.loader import import_parsers, load_parsers
from tokenwire.coordinator.parsing.message import ParserUnusable
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

_OTHER_VLLM = """
import vllm.exceptions
del vllm.exceptions.VLLMClientError
from tokenwire.coordinator.parsing.loader import import_parsers
from tokenwire.coordinator.parsing.settings import ParserSettings
import_parsers(ParserSettings(reasoning_parser="qwen3"))
"""


def test_without_parsers_nothing_is_loaded() -> None:
    """A tool parser counts only with automatic choice."""
    assert load_parsers(ParserSettings(), ModelFacts(), {}) is None
    assert load_parsers(ParserSettings("hermes"), ModelFacts(), {}) is None


def test_a_missing_vllm_is_reported_with_the_command_that_installs_it() -> None:
    """vLLM is not imported without parsers."""
    ran = subprocess.run([sys.executable, "-c", _WITHOUT_VLLM], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "ParserUnusable" in ran.stderr.splitlines()[-1]
    assert "pip install 'tokenwire[parsers]'" in ran.stderr.splitlines()[-1]


@pytest.mark.engine
def test_a_vllm_with_other_parsers_is_reported() -> None:
    """With its version, since workers may run one whose parsers differ."""
    pytest.importorskip("vllm.exceptions")
    ran = subprocess.run([sys.executable, "-c", _OTHER_VLLM], capture_output=True, text=True, check=False)
    assert "ParserUnusable" in ran.stderr.splitlines()[-1]
    assert re.search(r"parsers of vLLM \d+\.\d+\S* are not supported .*VLLMClientError", ran.stderr.splitlines()[-1])


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
