"""Modules that run in a simulation get time, chance, ids, tasks, threads and environment only from what a seed decides.

`chance` replaces clocks, draws, `uuid.uuid4` and `os.urandom` in their own modules, and `World` is the event loop: it
decides when tasks and timers run, and what `asyncio.to_thread` calls. All of these may be used anywhere. Any other name
of a guarded module needs a place and a reason below. The source of every module that a simulation imports is read.

What the source does not show is left to run time: a test of `World` finds functions that were bound before they were
replaced, and a run that reaches a socket, a process, a thread or `time.sleep` ends with Escape.
"""

import ast
import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from tests.simulation.inside import run_inside

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
GUARDED = re.compile(
    r"(time|datetime|sched|random|secrets|uuid|tempfile|threading|_thread|queue|concurrent|multiprocessing|subprocess"
    r"|signal|os|platform|getpass|socket|socketserver|select|selectors|http\.client|urllib\.request|anyio"
    r"|starlette\.concurrency|fastapi\.concurrency|psutil|resource|numpy|importlib|asyncio\.events|asyncio\.runners"
    r"|google\.protobuf\.(timestamp|duration)_pb2)(\.|$)"
    r"|asyncio\.(run|Runner|new_event_loop|set_event_loop|open_|start_|create_subprocess|subprocess)"
)
"""Names of which only those below may be used."""
PURE = {
    *("os.sep", "os.path.basename", "os.path.normpath", "socket.SOCK_STREAM", "uuid.UUID"),
    *("datetime.datetime.fromtimestamp", "threading.Lock", "threading.local"),
}
"""Names that depend on nothing but what they are given, in one thread."""
_NAMED = "simulated coordinators are named"
_SIBLINGS = "a simulated coordinator is alone on its port"
_RENDERER = "no simulated request brings a template of its own"
_GRAMMARS = "no simulated request has a grammar, and whether they may is the same on each engine"
_DIRECTORIES = "simulated weights are directories that every machine has"
_FETCHES = "no simulated request has a picture, and without one no socket is made"
_TRAJECTORIES = "simulated coordinators record no trajectories"
PLACES = {
    ("coordinator/app.py", "os.getpid"): _NAMED,
    ("coordinator/app.py", "socket.gethostname"): _NAMED,
    ("coordinator/auth/redis_limit_store.py", "secrets.token_bytes"): "simulated coordinators share no limits",
    ("coordinator/fleet/admission/redis_share_store.py", "secrets.token_hex"): "nor shares",
    ("coordinator/fleet/discovery/kubernetes_api.py", "os.environ"): "simulated discovery is the script's",
    ("coordinator/fleet/failover/poison_journal.py", "os.stat"): "simulated coordinators have no journal",
    ("coordinator/generation/loaded_texts.py", "os.replace"): "simulated coordinators have no cache on disk",
    ("coordinator/generation/loaded_texts.py", "tempfile.NamedTemporaryFile"): "as above",
    ("coordinator/media/fetching.py", "socket.AF_INET"): _FETCHES,
    ("coordinator/media/fetching.py", "socket.AddressFamily"): _FETCHES,
    ("coordinator/media/fetching.py", "socket.socket"): _FETCHES,
    ("coordinator/media/name_lookups.py", "socket.AF_INET"): _FETCHES,
    ("coordinator/media/name_lookups.py", "socket.AI_ADDRCONFIG"): _FETCHES,
    ("coordinator/media/name_lookups.py", "socket.AI_NUMERICHOST"): _FETCHES,
    ("coordinator/media/name_lookups.py", "socket.AI_NUMERICSERV"): _FETCHES,
    ("coordinator/media/name_lookups.py", "socket.AddressFamily"): _FETCHES,
    ("coordinator/media/name_lookups.py", "socket.getaddrinfo"): _FETCHES,
    ("coordinator/media/name_lookups.py", "threading.Thread"): _FETCHES,
    ("coordinator/observability/siblings.py", "asyncio.open_unix_connection"): _SIBLINGS,
    ("coordinator/observability/siblings.py", "asyncio.start_unix_server"): _SIBLINGS,
    ("coordinator/observability/siblings.py", "os.getpid"): _SIBLINGS,
    ("coordinator/parsing/loader.py", "importlib.import_module"): "simulated coordinators have no parsers",
    (
        "coordinator/shared_redis.py",
        "importlib.util.find_spec",
    ): "says whether Redis's client is installed, which it is",
    ("coordinator/text/template/renderer_process.py", "subprocess.PIPE"): _RENDERER,
    ("coordinator/text/template/renderer_process.py", "subprocess.Popen"): _RENDERER,
    ("coordinator/trajectories/directory_store.py", "os.O_APPEND"): _TRAJECTORIES,
    ("coordinator/trajectories/directory_store.py", "os.O_CREAT"): _TRAJECTORIES,
    ("coordinator/trajectories/directory_store.py", "os.O_RDWR"): _TRAJECTORIES,
    ("coordinator/trajectories/directory_store.py", "os.R_OK"): _TRAJECTORIES,
    ("coordinator/trajectories/directory_store.py", "os.W_OK"): _TRAJECTORIES,
    ("coordinator/trajectories/directory_store.py", "os.X_OK"): _TRAJECTORIES,
    ("coordinator/trajectories/directory_store.py", "os.access"): _TRAJECTORIES,
    ("coordinator/trajectories/directory_store.py", "os.close"): _TRAJECTORIES,
    ("coordinator/trajectories/directory_store.py", "os.fstat"): _TRAJECTORIES,
    ("coordinator/trajectories/directory_store.py", "os.open"): _TRAJECTORIES,
    ("coordinator/trajectories/directory_store.py", "os.pread"): _TRAJECTORIES,
    ("coordinator/trajectories/directory_store.py", "os.strerror"): _TRAJECTORIES,
    ("coordinator/trajectories/directory_store.py", "os.write"): _TRAJECTORIES,
    ("tokenwire/process/hot_reload.py", "os.stat"): "simulated coordinators have no files that are reloaded",
    ("tokenwire/process/line_process.py", "asyncio.create_subprocess_exec"): _GRAMMARS,
    ("tokenwire/process/line_process.py", "asyncio.subprocess.PIPE"): _GRAMMARS,
    ("tokenwire/process/line_process.py", "asyncio.subprocess.Process"): _GRAMMARS,
    ("tokenwire/process/line_process.py", "os.environ"): _GRAMMARS,
    ("worker/engine/cpu_time.py", "os.getpid"): "replaced by tests.simulation.engines",
    ("worker/engine/cpu_time.py", "os.sysconf"): "replaced by tests.simulation.engines",
    ("worker/simulated_engine/grammars.py", "importlib.util.find_spec"): _GRAMMARS,
    ("worker/simulated_engine/engine.py", "os._exit"): "scripts kill processes themselves",
    (
        "worker/simulated_engine/pooling.py",
        "random.Random",
    ): "seeded by the weights and the input; no simulated engine pools",
    ("worker/state/serving_state.py", "os.path.isdir"): _DIRECTORIES,
    ("worker/state/weight_roots.py", "os.path.exists"): _DIRECTORIES,
}
"""Where another name is used all the same, and why no run depends on it."""
_INSIDE = """
    import json, sys
    import tests.simulation.run

    names = [each for each in sys.modules if each.startswith("tokenwire") and not each.startswith("tokenwire.v1")]
    draws = ["random." + each for each in chance._DRAWS]
    clocks = ["time." + each + unit for each in chance._CLOCKS for unit in ("", "_ns")]
    print(json.dumps([names, [*clocks, *draws, "uuid.uuid4", "os.urandom"]]))
"""


def _uses(source: str) -> Iterator[str]:
    """Yield the full names of what a module uses of the modules that it imports."""
    tree = ast.parse(source)
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            # `import a.b` binds a, and `import a.b as c` binds a.b.
            imported |= {name.asname or name.name.split(".")[0]: name.name for name in node.names if name.asname}
            imported |= {first: first for name in node.names if not name.asname for first in name.name.split(".")[:1]}
        elif isinstance(node, ast.ImportFrom):
            imported |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
            yield from (f"{node.module}.*" for name in node.names if name.name == "*")
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and id(node) not in inner:
            first, *rest = _parts(node)
            if first in imported:
                yield ".".join([imported[first], *rest])


def _parts(node: ast.expr) -> list[str]:
    """Return the parts of a dotted name; of what is no name, the first part is empty."""
    if isinstance(node, ast.Attribute):
        return [*_parts(node.value), node.attr]
    return [node.id] if isinstance(node, ast.Name) else [""]


def _around(source: str, allowed: Collection[str]) -> set[str]:
    """Return the guarded names that a module uses and that are not allowed everywhere."""
    return {name for name in _uses(source) if GUARDED.match(name) and name not in allowed}


def _path(module: str) -> str:
    """Return the path of a module of tokenwire; its halves are links to folders of the tree."""
    path = Path(*module.split("."))
    file = path.with_suffix(".py") if (ROOT / path).with_suffix(".py").exists() else path / "__init__.py"
    return (ROOT / file).resolve().relative_to(ROOT).as_posix()


def test_simulated_modules_reach_nothing_that_no_seed_decides() -> None:
    """But for the places above, each of which is in use."""
    modules, replaced = json.loads(run_inside(_INSIDE))
    paths = [_path(module) for module in modules]
    found = {(path, name) for path in paths for name in _around((ROOT / path).read_text(), {*replaced, *PURE})}

    assert len(paths) > 200
    assert found - set(PLACES) == set()
    assert set(PLACES) - found == set()


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import time\ntime.sleep(1)", {"time.sleep"}),
        ("import random\nrandom.Random()", {"random.Random"}),
        ("from datetime import datetime as d\ndef now(): return d.now()", {"datetime.datetime.now"}),
        ("import os\nfrom os import environ\nenviron['A'], os.environ['B']", {"os.environ"}),
        (
            "import concurrent.futures as futures\nfutures.ThreadPoolExecutor()",
            {"concurrent.futures.ThreadPoolExecutor"},
        ),
        (
            "import asyncio\nasyncio.open_connection(), asyncio.sleep(1), asyncio.to_thread(print)",
            {"asyncio.open_connection"},
        ),
        ("import secrets\nprint(secrets.token_hex)", {"secrets.token_hex"}),
        ("from time import *\nmonotonic()", {"time.*"}),
        (
            "from google.protobuf.timestamp_pb2 import Timestamp\nTimestamp().GetCurrentTime()",
            {"google.protobuf.timestamp_pb2.Timestamp"},
        ),
        ("import time, uuid\ntime.monotonic(), uuid.uuid4(), uuid.uuid1()", {"uuid.uuid1"}),
    ],
)
def test_names_are_found_however_they_are_imported(source: str, names: set[str]) -> None:
    """Otherwise the list above would not say all."""
    assert _around(source, {"time.monotonic", "uuid.uuid4"}) == names
