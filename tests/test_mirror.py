"""Tests lie where their subjects do, and helpers of tests have one home each.

coordinator/fleet/slots.py is tested by tests/coordinator/fleet/test_slots.py. What differs stands here with its reason.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
PACKAGES = ("coordinator", "worker", "tokenwire")
GENERATED = ROOT / "tokenwire" / "v1"

DECLARATIONS = "declares options, whose bounds and reading test_options.py and test_click_options.py check"
INTERFACE = "an interface without behaviour"
DESCRIBED = "describes responses; test_document.py compares them with real ones"
WITHOUT_TESTS_OF_THEIR_OWN = {
    "coordinator/api/admin/routes.py": "joins routes; test_operations.py finds each of them described",
    "coordinator/api/openapi/admin_operations.py": "descriptions of routes, in tables that test_operations.py checks",
    "coordinator/api/openapi/admin_schemas.py": DESCRIBED,
    "coordinator/api/openapi/error_schemas.py": DESCRIBED,
    "coordinator/api/openapi/messages_schemas.py": DESCRIBED,
    "coordinator/api/openapi/openai_schemas.py": DESCRIBED,
    "coordinator/api/openapi/operation.py": "one dataclass, the row of operations.py",
    "coordinator/api/openapi/pooling_schemas.py": DESCRIBED,
    "coordinator/api/openapi/render_schemas.py": DESCRIBED,
    "coordinator/api/openapi/responses_schemas.py": DESCRIBED,
    "coordinator/api/openapi/token_schemas.py": DESCRIBED,
    "coordinator/api/tokens/routes.py": "joins routes; test_operations.py finds each of them described",
    "coordinator/api/openapi/trajectory_operations.py": "descriptions of routes; test_operations.py checks them",
    "coordinator/api/openapi/trajectory_schemas.py": DESCRIBED,
    "coordinator/auth/limit_store.py": INTERFACE,
    "coordinator/fleet/admission/settings.py": DECLARATIONS,
    "coordinator/fleet/admission/share_store.py": INTERFACE,
    "coordinator/fleet/failover/settings.py": DECLARATIONS,
    "coordinator/fleet/pool_listener.py": INTERFACE,
    "coordinator/fleet/request_handle.py": INTERFACE,
    "coordinator/fleet/session_listener.py": INTERFACE,
    "coordinator/fleet/transport/vllm_http/settings.py": "one dataclass of two fields",
    "coordinator/http/readiness.py": "flags, a count, tasks; test_middleware.py and test_uvicorn_server.py use them",
    "coordinator/media/settings.py": DECLARATIONS,
    "coordinator/output/settings.py": DECLARATIONS,
    "tokenwire/__main__.py": "starts the command in a process, as cli/test_main.py does",
    "tokenwire/process/shared_options.py": DECLARATIONS,
    "worker/engine/interface.py": INTERFACE,
    "worker/engine/media.py": INTERFACE,
    "worker/media/fork_server.py": "the process that test_processor_pool.py runs",
    "worker/media/framing.py": "what test_processor_pool.py and its processes speak",
    "worker/media/settings.py": DECLARATIONS,
    "worker/vllm_engine/media_processor.py": "runs in processes; test_media.py compares what they make with vLLM's own",
}
"""Modules without tests at their path, and why."""

PARITY = "compares many modules at once with vLLM's own code"
ABOUT_SEVERAL_MODULES = {
    "coordinator/fleet/behaviour": "what sessions, pool and failover do together, with workers in the test's process",
    "coordinator/api/test_authentication.py": "the middleware's, by keys, accounts and limits of auth/",
    "coordinator/api/trajectories/test_session_memory.py": "what reading takes, by sessions, shapes and the graph",
    "coordinator/history/test_exactness.py": "whole conversations, through all modules of the history",
    "coordinator/parsing/test_chunkings.py": "holds each of vLLM's parsers against itself, through all of parsing",
    "coordinator/parsing/test_vllm_parity.py": PARITY,
    "coordinator/text/template/test_begun_conversations.py": "of real models' templates, and of no module",
    "coordinator/text/template/test_vllm_rendering.py": PARITY,
    "coordinator/text/test_vllm_parity.py": PARITY,
    "coordinator/trajectories/test_lost_turns.py": "what recorder, stores and readers do together",
    "tokenwire/test_v1.py": "the generated code, which equals what its proto files make",
}
"""Test files, or folders of them, that no module has the name of, and why."""


def modules() -> Iterator[str]:
    """Yield the modules that people wrote."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):  # follows no links, so tokenwire's are not walked
            if path.name != "__init__.py" and not path.is_relative_to(GENERATED):
                yield str(path.relative_to(ROOT))


def place_of(module: str) -> str:
    """Return the path of a module's tests, below tests/."""
    path = Path(module)
    return str(path.with_name(f"test_{path.name}"))


def test_every_module_has_tests_at_its_path() -> None:
    """Or says why it has none."""
    missing = {module for module in modules() if not (TESTS / place_of(module)).exists()}

    assert missing - WITHOUT_TESTS_OF_THEIR_OWN.keys() == set()
    assert WITHOUT_TESTS_OF_THEIR_OWN.keys() - missing == set(), "no longer exceptions"


def test_every_test_file_has_its_module() -> None:
    """Or says what it is about."""
    mirrored = {place_of(module) for module in modules()}
    files = {str(path.relative_to(TESTS)) for package in PACKAGES for path in (TESTS / package).rglob("test_*.py")}
    stray = files - mirrored

    unexplained = {name for name in stray if ABOUT_SEVERAL_MODULES.keys().isdisjoint({name, str(Path(name).parent)})}
    explained = {str(Path(name).parent) for name in stray} | stray
    assert len(files) > 250
    assert unexplained == set()
    assert ABOUT_SEVERAL_MODULES.keys() - explained == set(), "no longer exceptions"


def is_fixture(node: ast.AST) -> bool:
    """Return whether pytest finds it by its name in one module or folder."""
    return any("fixture" in ast.unparse(each) for each in getattr(node, "decorator_list", ()))


def helpers(path: Path) -> Iterator[str]:
    """Yield the functions and classes of a module that are neither tests nor fixtures.

    Private ones count in test files; in shared modules they are nobody else's. Every program has its main.
    """
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or is_fixture(node):
            continue
        is_shared = not path.name.startswith("test_")
        is_own = node.name == "main" or (is_shared and node.name.startswith("_"))
        if not is_own and not node.name.startswith(("test_", "Test", "pytest_")):
            yield node.name


def test_helpers_of_tests_have_names_of_their_own() -> None:
    """What two files need is in one module that both import; what only has the same name gets another one."""
    places = defaultdict(list)
    for path in sorted(TESTS.rglob("*.py")):
        if path.is_relative_to(TESTS / ".cache"):
            continue  # environments of clients, which `make conformance` leaves
        for name in helpers(path):
            places[name].append(str(path.relative_to(TESTS)))

    assert len(places) > 500
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}
