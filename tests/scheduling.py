"""Which tests run in one process: those of a file, and all that import vLLM, so that one process pays for it."""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

IMPORT_VLLM = (
    "tests/worker/vllm_engine/",
    "tests/coordinator/parsing/",
    "tests/coordinator/text/test_vllm_",
    "tests/coordinator/text/template/test_vllm_",
    "tests/conformance/parity/test_requests.py",
)
"""How the paths of tests that import vLLM themselves begin."""


class OneForVllm(LoadFileScheduling):  # type: ignore[misc]
    """Hands out files, and what imports vLLM as if it were one."""

    def _split_scope(self, nodeid: str) -> str:
        return "vllm" if nodeid.startswith(IMPORT_VLLM) else nodeid.split("::", 1)[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneForVllm:
    """Use it whatever --dist says."""
    return OneForVllm(config, log)
