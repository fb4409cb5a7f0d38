"""Which tests run in one process: those of a file, and those that share what takes long to import or to start."""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

IMPORT_VLLM = (
    "tests/worker/vllm_engine/",
    "tests/coordinator/parsing/",
    "tests/coordinator/text/test_vllm_",
    "tests/coordinator/text/template/test_vllm_",
    "tests/conformance/parity/test_requests.py",
)
"""How the paths of tests that import vLLM themselves begin."""
SHARE_SCRIPTED = tuple(
    f"tests/e2e/test_{name}.py"
    for name in ("anthropic_client", "history_routes", "render", "responses", "token_history", "tools")
)
"""Tests that share a coordinator with vLLM's parsers, and its workers."""
SHARE_TINY = ("tests/e2e/test_real_",)
SHARE_EMBEDDED = ("tests/e2e/test_make_serve", "tests/docs/test_examples")
"""How the paths of tests begin that share services with a real engine and either model."""
_TOGETHER = {"vllm": IMPORT_VLLM, "tiny": SHARE_TINY, "embedded": SHARE_EMBEDDED, "scripted": SHARE_SCRIPTED}

TAKE_LONG = (
    *_TOGETHER,
    "tests/simulation/test_runs.py",
    "tests/model/test_statements.py",
    "tests/packaging/test_installing.py",
    "tests/adversary/",
    "tests/faults/",
    "tests/e2e/test_soak.py",
)
"""What runs first: the names above, and how paths begin."""


class Together(LoadFileScheduling):  # type: ignore[misc]
    """Hands out files, and some of them as if they were one. xdist begins with those of most tests."""

    def _split_scope(self, nodeid: str) -> str:
        names = (name for name, beginnings in _TOGETHER.items() if nodeid.startswith(beginnings))
        return next(names, nodeid.split("::", 1)[0])

    def _assign_work_unit(self, node: WorkerController) -> None:
        # Few tests that take long would be left for the end, when the other processes have nothing to do any more.
        long = next((scope for scope in self.workqueue if scope.startswith(TAKE_LONG)), None)
        if long is not None:
            self.workqueue.move_to_end(long, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together:
    """Use it whatever --dist is."""
    return Together(config, log)
