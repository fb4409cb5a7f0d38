"""What moved in vLLM is found in its sources, without importing them."""

import ast
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.compat import internals
from tests.compat.environments import ROOT
from tests.compat.internals import moved
from tests.compat.objects import NOT_VLLMS, OBJECTS, OURS
from tests.compat.sources import Sources, VllmClass
from tests.compat.use import ADAPTERS, AdapterFile, Argument, Attribute, Used, used

pytestmark = pytest.mark.ci

CORE = VllmClass("vllm.v1.core", "Core")
FIELDS = VllmClass("vllm.v1.core", "Fields")


@pytest.fixture
def vllm(tmp_path: Path) -> Path:
    """Sources with a class of each kind of member."""
    folder = tmp_path / "vllm"
    (folder / "v1").mkdir(parents=True)
    (folder / "__init__.py").write_text('MODULE_ATTRS = {"SamplingParams": ".sampling_params:SamplingParams"}\n')
    (folder / "sampling_params.py").write_text("class SamplingParams:\n    n: int\n")
    (folder / "inputs.py").write_text("from vllm.v1.core import tokens_input\n")
    (folder / "v1" / "__init__.py").write_text("from .core import Core\n")
    (folder / "v1" / "core.py").write_text(
        "class Base:\n    def abort(self, ids): ...\n"
        "class Core(Base):\n    queue: list\n    def __init__(self):\n        self.handler = None\n"
        "    async def add(self, request, priority, *, rank): ...\n"
        "    def trace(self, output, state): return state.n, state.top_p\n"
        "class Fields:\n    first: int\n    second: int\n"
        "def tokens_input(ids, salt=None): ...\n"
    )
    return folder


USE = Used(
    attributes=frozenset(
        {
            Attribute(VllmClass("vllm", ""), "SamplingParams"),
            Attribute(VllmClass("vllm.inputs", ""), "tokens_input"),
            Attribute(VllmClass("vllm.v1", ""), "core"),
            *(Attribute(VllmClass("vllm.v1", "Core"), name) for name in ("abort", "queue", "handler", "add")),
        }
    ),
    arguments=frozenset(
        {
            Argument(VllmClass("vllm", "SamplingParams"), "", "n"),
            Argument(VllmClass("vllm.inputs", "tokens_input"), "", "salt"),
            Argument(CORE, "add", "rank"),
        }
    ),
    leading=frozenset({(FIELDS, 2)}),
    replaced=frozenset({(CORE, "__init__", frozenset({"handler"}))}),
    stand_ins=frozenset({(CORE, "trace", 1, frozenset({"n", "top_p"}))}),
    asked=frozenset({"handler"}),
)
"""Adapters that use these members of Core, and ask for one of them first."""


class Edited(Sources):
    """The sources of the installed vLLM with a word replaced in one file."""

    def __init__(self, path: str, old: str, new: str) -> None:
        self._edit = path, old, new
        super().__init__(internals.installed().place)

    def text(self, path: str) -> str | None:
        """Return a file's text."""
        edited, old, new = self._edit
        text = super().text(path)
        return re.sub(old, new, text) if path == edited and text is not None else text


def test_nothing_moved(vllm: Path) -> None:
    """Inherited members, annotated ones, those set by methods; lazy imports, imported names, submodules."""
    assert vars(moved(Sources(vllm), Sources(vllm), USE)) == {"missing": [], "handled": [], "changed": []}


def test_a_wheel_is_read_as_it_is(vllm: Path, tmp_path: Path) -> None:
    """Without unpacking it."""
    wheel = tmp_path / "vllm-1.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in vllm.rglob("*.py"):
            archive.write(file, file.relative_to(tmp_path))

    assert moved(Sources(wheel), Sources(vllm), USE).missing == []


def test_what_is_gone_is_named(vllm: Path, tmp_path: Path) -> None:
    """Names, modules, members, arguments; those that adapters ask for first are not missed. What else is otherwise is
    shown: parameters, an order of fields, what a replaced method sets, what is read of an object of ours."""
    older = tmp_path / "older"
    (older / "v1").mkdir(parents=True)
    (older / "__init__.py").write_text("")
    (older / "v1" / "__init__.py").write_text("from vllm.v1.core import Core\n")
    (older / "v1" / "core.py").write_text(
        "class Core:\n    queue: list\n    def __init__(self):\n        self.other = None\n"
        "    def add(self, request): ...\n    def trace(self, output, req): return req.n, req.seed\n"
        "class Fields:\n    second: int\n    first: int\n"
    )

    found = moved(Sources(older), Sources(vllm), USE)

    assert found.missing == [
        "Core: abort",
        "Core: add(rank=)",
        "vllm.inputs: tokens_input",
        "vllm: SamplingParams",
        "Core: __init__ sets other",
        "Core: trace reads req.seed",
    ]
    assert found.handled == ["Core: handler"]
    assert found.changed == ["Core: add(-priority, -rank)", "Fields: begins with second, first"]


def test_the_adapters_use_of_vllm_is_found() -> None:
    """Imports inside functions, too; attributes, among them those that may be missing; arguments, and by dictionary."""
    use = used()
    client = VllmClass("vllm.v1.engine.core_client", "AsyncMPClient")
    request = VllmClass("vllm.v1.engine", "EngineCoreRequest")
    runner = VllmClass("vllm.v1.worker.gpu_model_runner", "GPUModelRunner")

    assert Attribute(VllmClass("vllm.distributed.utils", ""), "StatelessProcessGroup") in use.attributes
    assert {Attribute(client, "add_request_async"), Attribute(request, "external_req_id")} <= use.attributes
    assert {Attribute(runner, "discard_request_mask"), Attribute(runner, "reload_weights")} & use.attributes
    assert {"update_weight_version", "weight_version"} <= use.asked
    assert Argument(VllmClass("vllm", "SamplingParams"), "", "skip_clone") in use.arguments
    assert Argument(request, "", "reasoning_ended") in use.arguments
    assert Argument(runner, "reload_weights", "weights_path") in use.arguments


def test_no_object_is_listed_in_vain() -> None:
    """What the adapters have no more is not in the tables."""
    readers = [AdapterFile(file) for file in ADAPTERS.glob("*.py")]
    keys = {key for reader in readers for key in reader.names()}

    assert not (OBJECTS.keys() | NOT_VLLMS) - keys


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_object_is_left_out() -> None:
    """mypy knows which objects come from somewhere without types: each of these is vLLM's and listed, or is not."""
    left_out = []
    untyped = _untyped()
    for file in sorted(ADAPTERS.glob("*.py")):
        reader = AdapterFile(file)
        for node in ast.walk(reader.tree):
            if isinstance(node, ast.Attribute) and _span(file, node.value) in untyped:
                key = f"{file.stem}.{ast.unparse(node.value)}"
                if reader.owner_of(node.value) is None and not set(reader.keys_of(node.value)) & NOT_VLLMS:
                    left_out.append(f"{key}.{node.attr}")

    assert left_out == []


def _untyped() -> set[tuple[str, ...]]:
    """Return where expressions without a type begin and end."""
    command = [sys.executable, "-m", "mypy", "--disallow-any-expr", "--show-error-end", "--no-pretty"]
    command += ["--cache-dir", str(ROOT / ".mypy_cache" / "any"), str(ADAPTERS)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = re.findall(r'^(.+?):(\d+):(\d+):(\d+):(\d+): error: Expression has type "Any', ran.stdout, re.MULTILINE)
    assert found, ran.stdout + ran.stderr
    return set(found)


def _span(file: Path, node: ast.expr) -> tuple[str, ...]:
    places = node.lineno, node.col_offset + 1, node.end_lineno, node.end_col_offset
    return (str(file.relative_to(ROOT)), *map(str, places))


@pytest.mark.engine
def test_the_installed_vllm_has_all_of_it() -> None:
    """A name that is not there would be found here before anything starts; nothing listed is looked up in vain."""
    sources = internals.installed()

    assert moved(sources, sources).missing == []
    assert {internals.in_words(each) for each in internals.lacking(sources, used())} == OURS


@pytest.mark.engine
@pytest.mark.parametrize(
    ("path", "old", "new", "missing"),
    [
        ("sampling_params.py", r"\bskip_clone\b", "no_clone", "SamplingParams: skip_clone="),
        ("v1/worker/gpu_model_runner.py", r"\bdiscard_request_mask\b", "m", "GPUModelRunner: discard_request_mask"),
        ("v1/worker/gpu_input_batch.py", r"\bgenerators\b", "noise", "InputBatch: generators"),
        ("v1/engine/__init__.py", r"\bexternal_req_id\b", "outer_id", "EngineCoreRequest: external_req_id"),
        ("v1/sample/ops/topk_topp_sampler.py", r"\bforward_native\b", "draw", "TopKTopPSampler: forward_native"),
        ("v1/sample/sampler.py", r"\btopk_topp_sampler\b", "noise", "Sampler: topk_topp_sampler"),
        ("v1/metrics/stats.py", r"\bnum_cached_tokens\b", "cached", "PrefillStats: num_cached_tokens"),
        ("outputs.py", r"\bnum_cached_tokens\b", "cached", "RequestOutput: num_cached_tokens"),
        ("distributed/kv_events.py", r"\bgroup_idx\b", "group", "BlockStored: group_idx"),
        ("v1/engine/output_processor.py", r"req_state\.top_p", "req_state.p", "OutputProcessor: do_tracing reads"),
    ],
)
def test_a_patched_or_passed_name_that_moves_is_missed(path: str, old: str, new: str, missing: str) -> None:
    """Also one that no type checker and no import sees."""
    found = moved(Edited(path, old, new), internals.installed())

    assert any(each.startswith(missing) for each in [*found.missing, *found.handled]), found


@pytest.mark.engine
def test_fields_that_are_taken_by_their_order_are_compared_so() -> None:
    """Log-probabilities come as tuples."""
    swapped = Edited("v1/outputs.py", r"(class LogprobsLists\(NamedTuple\):)", r"\1\n    newer: int")

    assert "LogprobsLists: begins with newer" in moved(swapped, internals.installed()).changed[-1]
