"""The import contracts of pyproject.toml's [tool.importlinter]."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINTER = [
    sys.executable,
    "-c",
    "from importlinter.cli import lint_imports_command; lint_imports_command()",
    "--no-cache",
]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check a folder's package against the project's contracts."""
    command = [*LINTER, "--config", str(ROOT / "pyproject.toml")]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_the_contracts_are_kept() -> None:
    """Text and fleet are independent, coordinator and worker too; nothing imports from a layer above."""
    checked = lint(ROOT)

    assert checked.returncode == 0, checked.stdout


FORBIDDEN = [
    ("The command line imports both halves", "coordinator.app", "tokenwire.worker.engine.interface"),
    ("The command line imports both halves", "process.logs", "tokenwire.peer_auth.settings"),
    ("Packages of the coordinator", "coordinator.text.stops", "tokenwire.coordinator.fleet.slots"),
    ("Packages have no import cycles", "coordinator.api.fields.wire_values", "tokenwire.coordinator.api.fields.common"),
    ("Modules of the fleet", "coordinator.fleet.session", "tokenwire.coordinator.fleet.admission.queue"),
    ("Packages of the worker", "worker.state.serving_state", "tokenwire.worker.vllm_engine.engine"),
    ("The fleet handles token ids", "coordinator.fleet.slots", "tokenwire.coordinator.text.stops"),
    ("The fleet handles token ids", "coordinator.fleet.slots", "tokenwire.coordinator.types"),
    ("Only the engines", "worker.engine.interface", "tokenizers"),
    ("Only the API", "coordinator.generation.limits", "starlette"),
    ("Only the API", "coordinator.generation.limits", "pydantic"),
    ("Only the API", "coordinator.fleet.pool", "starlette"),
    ("Only the API", "coordinator.auth.caller", "starlette"),
    ("Only the API", "coordinator.http.lent_connection", "pydantic"),
    ("Only the API", "coordinator.observability.record", "starlette"),
    ("Output is written", "coordinator.output.sse", "socket"),
    ("Only vLLM's parsers", "coordinator.text.tokenizer", "transformers"),
]
"""Contracts, modules, and imports that the contract forbids them."""


def test_a_forbidden_import_is_found(tmp_path: Path) -> None:
    """One line breaks each contract, so none of them passes because it checks nothing."""
    for name in ("tokenwire", "coordinator", "worker"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for _, module, imported in FORBIDDEN:
        path = tmp_path / "tokenwire" / f"{module.replace('.', '/')}.py"
        path.write_text(f"{path.read_text()}\nimport {imported}\n")

    checked = lint(tmp_path)

    broken = " ".join(checked.stdout.partition("Broken contracts")[2].split())
    assert checked.returncode == 1
    assert not [contract for contract, _, _ in FORBIDDEN if contract not in broken], checked.stdout
    assert not [forbidden for forbidden in FORBIDDEN if not is_listed(broken, *forbidden[1:])], checked.stdout


def test_below_the_api_nothing_is_an_object_of_json() -> None:
    """Types have no method for it, except the results that an error has for its client."""
    found = {
        f"{path.relative_to(ROOT)}:{name}"
        for path in (ROOT / "coordinator").rglob("*.py")
        if not path.is_relative_to(ROOT / "coordinator" / "api")
        for name in re.findall(r"def (as_dict|as_json|to_dict|to_json)\w*\(", path.read_text())
    }

    assert found == {"coordinator/fleet/admin.py:as_dict"}


JSON_FOR = {
    "fleet/admin.py": "workers",
    "fleet/admission/redis_share_store.py": "the script of a shared store",
    "fleet/failover/poison_journal.py": "the processes of a port",
    "fleet/transport/vllm_http/http_client.py": "vLLM's server",
    "fleet/transport/vllm_http/media_body.py": "vLLM's server",
    "fleet/transport/vllm_http/model_info.py": "the coordinator, as a worker would",
    "fleet/transport/vllm_http/request_body.py": "vLLM's server",
    "fleet/transport/vllm_http/sequences.py": "the coordinator, as a worker would",
    "generation/service.py": "workers",
    "media/embeddings.py": "workers",
    "history/digests.py": "digests",
    "http/bounded_protocol.py": "clients: errors of their connection",
    "observability/metrics/exposition.py": "the processes of a port",
    "parsing/grammar.py": "workers",
    "parsing/harmony.py": "prompts",
    "response_store/stored_response.py": "the coordinators of a shared store",
    "trajectories/directory_store.py": "the processes of a host",
    "trajectories/redis_store.py": "the coordinators of a shared store",
    "trajectories/stored_json.py": "digests, and the processes that share a store",
    "text/template/filters.py": "prompts",
    "text/template/renderer_main.py": "the coordinator",
    "text/template/renderer_process.py": "its process",
}
"""Modules of the coordinator below the API that write JSON, and for whom."""


def test_below_the_api_json_is_written_for_others_than_clients() -> None:
    """But for errors of a connection: what HTTP responses look like is the API's alone."""
    coordinator = ROOT / "coordinator"
    found = {
        str(path.relative_to(coordinator))
        for path in coordinator.rglob("*.py")
        if not path.is_relative_to(coordinator / "api") and re.search(r"json\.dumps\(|JSONEncoder", path.read_text())
    }

    assert found == JSON_FOR.keys()


def is_listed(report: str, module: str, imported: str) -> bool:
    """Return whether the linter's report names an import; cycles are reported between siblings, by short names."""
    siblings = f"- .{module.rpartition('.')[2]} -> .{imported.rpartition('.')[2]} "
    return f"tokenwire.{module} -> {imported} " in report or siblings in report


def test_the_fleet_loads_no_tokenizer() -> None:
    """A process that imports the worker pool has loaded neither a tokenizer nor a template engine."""
    program = "import sys, tokenwire.coordinator.fleet.pool; print({'tokenizers', 'jinja2'} & set(sys.modules))"

    loaded = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)

    assert loaded.stdout == "set()\n", loaded.stderr
