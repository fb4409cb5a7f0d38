"""Files are short enough to be read at a sitting, or give a reason why they are not."""

import ast
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from tests.test_mirror import modules

ROOT = Path(__file__).parents[1]
FOLDERS = ("benchmarks", "coordinator", "examples", "gpu", "scripts", "tests", "tokenwire", "worker")
MOST_LINES = 300
MOST_LINES_OF_A_FUNCTION = 40
REASONS = (" beyond the usual length, ", "One file, since ")
"""How the reason begins in the docstring of a longer file, or in the first comment of one that is not Python."""
GENERATED = (
    "benchmarks/results/",
    "deploy/k8s/tokenwire/files/dashboard.json",
    "docs/plots/",
    "docs/reference/http.md",
    "docs/reference/parsers.md",
    "docs/reference/protocol.md",
    "tokenwire/v1/",
)
"""Files that programs write."""
FIRST_LINES = 10

FEW_LINES = 40
SMALL_MODULES = {
    "coordinator/api/admin/routes.py": "the one list of the package's routes, which the application adds",
    "coordinator/api/pooling/routes.py": "the one list of the package's routes, which the application adds",
    "coordinator/api/tokens/routes.py": "the one list of the package's routes, which the application adds",
    "coordinator/fleet/admission/throughput.py": "an estimate that needs nothing of the queue's, and is tested alone",
    "coordinator/fleet/weight_labels.py": "a limit with a clock, tested alone, of a session that is long",
    "coordinator/observability/metrics/media.py": "a collector of the lowest package, tested alone",
    "coordinator/observability/metrics/parsers.py": "a collector of the lowest package, tested alone",
    "coordinator/trajectories/metrics.py": "a collector of another library, tested alone",
    "coordinator/parsing/brief_logs.py": "a filter of logs that needs nothing of the parsers, which are long",
    "coordinator/parsing/gradual_release.py": "a remedy for one cost of vLLM's parser engine, tested alone",
    "coordinator/parsing/grammar.py": "a conversion that is tested alone",
    "coordinator/trajectories/open_store.py": "imports each store only where it is configured",
    "tokenwire/process/one_heap.py": "calls the C library before a thread starts, and is tested in other processes",
    "worker/services/health.py": "one of the worker's gRPC services; each has its module",
    "worker/services/recent_aborts.py": "a memory with a clock, tested alone, of a server that is long",
    "worker/simulated_engine/metrics.py": "names of vLLM's metrics, which the reference reads too",
    "worker/vllm_engine/arguments.py": "imports vLLM's parser of arguments, which others must not do",
    "worker/vllm_engine/extension.py": "vLLM imports it by name, in processes of its own",
    "worker/vllm_engine/weights.py": "reads vLLM's configuration of files, and is tested without an engine",
}
"""Modules that one other imports, and why they are not part of it."""


def sources() -> list[Path]:
    """Return the files that people wrote."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]  # follows no links
    return [path for path in found if not path.is_relative_to(ROOT / "tokenwire" / "v1") and ".cache" not in path.parts]


def test_long_files_give_a_reason() -> None:
    """In the docstring of the module."""
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in sources()}
    long = {name for name, text in texts.items() if text.count("\n") > MOST_LINES}
    explained = {
        name for name in long if any(reason in (ast.get_docstring(ast.parse(texts[name])) or "") for reason in REASONS)
    }

    assert len(texts) > 500
    assert long - explained == set()


def test_long_files_that_are_not_python_give_a_reason() -> None:
    """In their first lines."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout of git")
    names = [name for name in listed.stdout.splitlines() if not name.endswith(".py") and (ROOT / name).is_file()]
    texts = {name: (ROOT / name).read_bytes() for name in names if not name.startswith(GENERATED)}
    long = {name: text for name, text in texts.items() if b"\0" not in text and text.count(b"\n") > MOST_LINES}
    heads = {name: b"\n".join(text.split(b"\n")[:FIRST_LINES]).decode() for name, text in long.items()}

    assert {name for name, head in heads.items() if not any(reason in head for reason in REASONS)} == set()
    assert "pyproject.toml" in long


def imported_by(path: str) -> set[str]:
    """Return the modules that a module imports."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def name_of_module(path: str) -> str:
    """Return the name under which a file is imported."""
    name = path.removesuffix(".py").replace("/", ".")
    return name if name.startswith("tokenwire.") else f"tokenwire.{name}"


def test_small_modules_have_several_users_or_a_reason() -> None:
    """One that a single module imports is part of it, unless a reason is given."""
    lines = {path: (ROOT / path).read_text().count("\n") for path in modules()}
    users = defaultdict(list)
    for path in lines:
        for name in imported_by(path):
            users[name].append(path)
    small = {path for path, count in lines.items() if count < FEW_LINES and len(users[name_of_module(path)]) == 1}

    assert small == SMALL_MODULES.keys()


def test_functions_are_short() -> None:
    """Those of the source; tests and scripts may have longer scenarios."""
    long = {
        f"{path.relative_to(ROOT)}:{node.name}"
        for path in sources()
        if path.relative_to(ROOT).parts[0] in ("coordinator", "tokenwire", "worker")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MOST_LINES_OF_A_FUNCTION
    }

    assert long == set()
