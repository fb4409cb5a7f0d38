"""Parsers without the rest of vLLM: nothing heavy is imported, and each does what it does with all of vLLM."""

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from tests.coordinator.parsing import every_parser
from tokenwire.coordinator.parsing.light_imports import LightImports, StandInUsed, exports

pytestmark = pytest.mark.ci

_WITH_VLLM = pytest.mark.skipif(find_spec("vllm") is None, reason="could not import vllm")
_HEAVY = {
    *("huggingface_hub.hf_api", "jsonschema", "mistral_common.image", "numpy", "pycountry", "requests", "torch"),
    *("vllm.config", "vllm.distributed", "vllm.model_executor", "vllm.multimodal"),
}
_LIGHT = """
import json, sys
from tokenwire.coordinator.parsing.light_imports import import_lightly
import_lightly()
from tokenwire.coordinator.parsing.vllm_parsers import ReasoningParserManager, ToolParserManager
ToolParserManager.get_tool_parser("mistral"), ReasoningParserManager.get_reasoning_parser("qwen3")
print(json.dumps({name: getattr(module, "__file__", None) for name, module in sys.modules.items()}))
"""
_ARRAYS = """
from tokenwire.coordinator.parsing.light_imports import StandInUsed, import_lightly
import_lightly()
from vllm.sampling_params import np
import numpy
assert not isinstance(numpy.zeros(1), np.ndarray)
try:
    np.zeros(1)
except StandInUsed:
    print("true")
"""
_DISTRIBUTIONS = """
import json
from importlib import metadata
from tokenwire.coordinator.parsing.light_imports import import_lightly
read = metadata.packages_distributions
import_lightly()
from transformers.utils.import_utils import PACKAGE_DISTRIBUTION_MAPPING as kept
assert metadata.packages_distributions is read
print(json.dumps([kept.get("none"), sorted(kept["grpc"]), len(kept) == len(read()), set(kept) == set(read())]))
"""
_TOO_LATE = """
import sys
import torch
from tokenwire.coordinator.parsing.light_imports import LightImports, import_lightly
import_lightly()
assert not any(isinstance(finder, LightImports) for finder in sys.meta_path)
"""


def printed_by(*arguments: str) -> Any:
    """Return the JSON that a process of Python prints last."""
    ran = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout.splitlines()[-1])


def test_exports_of_a_package_are_what_its_init_imports() -> None:
    """From modules of its own and of others, under the names that they get, also those for type checkers alone."""
    source = "from .a import One, Two as Second\nfrom other.b import Three\nimport json\nfrom . import c\n"
    source += "if TYPE_CHECKING:\n    from .d import Four\nif other:\n    from .e import Five\n"
    assert exports("package", source) == {
        "One": ("package.a", "One"),
        "Second": ("package.a", "Two"),
        "Three": ("other.b", "Three"),
        "Four": ("package.d", "Four"),
    }


def test_names_of_a_stand_in_can_be_mentioned_and_not_used() -> None:
    """In annotations, in checks of a class, and with names inside; a call names the option that loads all of vLLM."""
    finder = LightImports()
    spec = finder.find_spec("torch", None)
    assert spec is not None
    torch = finder.create_module(spec)
    assert not isinstance(1, torch.Tensor | torch.nn.Module)
    with pytest.raises(StandInUsed, match=r"torch\.nn\.Module is not loaded beside parsers; --load-whole-vllm"):
        torch.nn.Module()


@pytest.mark.parametrize("name", ["torchvision", "vllm.configuration", "vllm.tool_parsers", "json"])
def test_other_modules_are_not_replaced(name: str) -> None:
    """Also those whose names begin like a stand-in's."""
    assert LightImports().find_spec(name, None) is None


@pytest.mark.engine
@_WITH_VLLM
def test_nothing_heavy_is_imported_with_the_parsers() -> None:
    """Only names of torch and of the engine are there, which have no file."""
    files = printed_by("-c", _LIGHT)
    assert {name: files[name] for name in _HEAVY if files.get(name)} == {}
    assert files["vllm.parser.abstract_parser"] is not None


@pytest.mark.engine
@_WITH_VLLM
def test_numpy_is_a_stand_in_for_vllm_alone() -> None:
    """Others in the process, such as exports of trajectories, may use it."""
    assert printed_by("-c", _ARRAYS)


@pytest.mark.engine
@_WITH_VLLM
def test_names_of_distributions_are_there_when_they_are_looked_up() -> None:
    """The metadata of all packages, which transformers keeps at each start, is not read before."""
    assert printed_by("-c", _DISTRIBUTIONS) == [None, ["grpcio"], True, True]


@pytest.mark.engine
@_WITH_VLLM
def test_a_process_that_has_torch_already_keeps_it() -> None:
    """Such as one that runs an engine, too."""
    subprocess.run([sys.executable, "-c", _TOO_LATE], check=True)


@pytest.mark.engine
@_WITH_VLLM
def test_every_parser_does_what_it_does_with_all_of_vllm() -> None:
    """Same deltas, messages, grammars and errors for outputs drawn from each one's own markers."""
    light, whole = (printed_by("-m", every_parser.__name__, how) for how in ("light", "whole"))
    assert (light["has torch"], whole["has torch"]) == (False, True)
    assert len(whole["results"]) > 80
    assert light["results"] == whole["results"]
    assert sum("ToolCallDelta" in str(each) for each in light["results"].values()) > 8
    assert sum("reasoning='" in str(each) for each in light["results"].values()) > 12
