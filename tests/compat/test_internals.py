"""What moved in vLLM is found in its sources, without importing them."""

import zipfile
from pathlib import Path

import pytest

from tests.compat import internals
from tests.compat.internals import Sources, Used, moved


@pytest.fixture
def vllm(tmp_path: Path) -> Path:
    """Sources with a class of each kind of member."""
    folder = tmp_path / "vllm"
    (folder / "v1").mkdir(parents=True)
    (folder / "__init__.py").write_text('MODULE_ATTRS = {"SamplingParams": ".sampling_params:SamplingParams"}\n')
    (folder / "inputs.py").write_text("from vllm.v1.core import tokens_input\n")
    (folder / "v1" / "__init__.py").write_text("")
    (folder / "v1" / "core.py").write_text(
        "class Base:\n    def abort(self, ids): ...\n"
        "class Core(Base):\n    queue: list\n    def __init__(self):\n        self.handler = None\n"
        "    async def add(self, request, priority): ...\n"
    )
    return folder


USE = Used(
    frozenset({("vllm", "SamplingParams"), ("vllm.inputs", "tokens_input"), ("vllm.v1", "core")}),
    frozenset(("v1/core.py", "Core", name) for name in ("abort", "queue", "handler", "add")),
    frozenset({"handler"}),
)
"""Adapters that use these members of Core, and ask for one of them first."""


def test_nothing_moved(vllm: Path) -> None:
    """Inherited members, annotated ones, those set by methods; lazy imports, imported names, submodules."""
    assert vars(moved(Sources(vllm), Sources(vllm), USE)) == {"missing": [], "handled": [], "changed": []}


def test_a_wheel_is_read_as_it_is(vllm: Path, tmp_path: Path) -> None:
    """Without unpacking it."""
    wheel = tmp_path / "vllm-1.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in vllm.rglob("*.py"):
            archive.write(file, file.relative_to(tmp_path))

    assert moved(Sources(wheel), use=USE).missing == []


def test_what_is_gone_is_named(vllm: Path, tmp_path: Path) -> None:
    """Names, modules and members; those that adapters ask for first are not missed. Other parameters are shown."""
    older = tmp_path / "older"
    (older / "v1").mkdir(parents=True)
    (older / "__init__.py").write_text("")
    (older / "v1" / "__init__.py").write_text("")
    (older / "v1" / "core.py").write_text("class Core:\n    queue: list\n    def add(self, request): ...\n")

    found = moved(Sources(older), Sources(vllm), USE)

    assert found.missing == ["vllm: SamplingParams", "vllm.inputs: tokens_input", "Core: abort"]
    assert found.handled == ["Core: handler"]
    assert found.changed == ["Core: add(-priority)"]


def test_the_adapters_use_of_vllm_is_found() -> None:
    """Imports inside functions, too, and attributes of vLLM's objects, among them those that may be missing."""
    use = internals.used()
    core = ("v1/engine/core_client.py", "AsyncMPClient")

    assert ("vllm.v1.engine.async_llm", "AsyncLLM") in use.imports
    assert ("vllm.distributed.utils", "StatelessProcessGroup") in use.imports
    assert {(*core, "add_request_async"), (*core, "get_output_async")} <= use.attributes
    assert {"update_weight_version", "weight_version"} <= use.asked
    assert ("v1/engine/__init__.py", "EngineCoreOutputs", "weight_version") in use.attributes


@pytest.mark.engine
def test_the_installed_vllm_has_all_of_it() -> None:
    """A name that is not there would be found here before anything starts."""
    assert moved(internals.installed(), internals.installed()).missing == []
