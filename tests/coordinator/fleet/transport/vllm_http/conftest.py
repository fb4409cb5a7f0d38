"""A plain vLLM server, and a session with it over real HTTP."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.coordinator.fleet.transport.vllm_http.sessions import EOS, vllm_session
from tests.plain_vllm_server import FakeVllmServer, fake_vllm_server
from tests.workers import until
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.session_listener import SessionState


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A model's directory; the tokenizer is not needed here."""
    config = {"vocab_size": 1000, "model_type": "llama", "architectures": ["LlamaForCausalLM"], "eos_token_id": EOS}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.6, "max_new_tokens": 64, "bos_token_id": 1}')
    return tmp_path


@pytest.fixture
async def server() -> AsyncIterator[FakeVllmServer]:
    """A plain vLLM server."""
    async with fake_vllm_server() as fake:
        yield fake


@pytest.fixture
async def session(server: FakeVllmServer, directory: Path) -> AsyncIterator[WorkerSession]:
    """A session that takes requests."""
    async with vllm_session(server, directory) as session:
        await until(lambda: session.state is SessionState.READY)
        yield session
