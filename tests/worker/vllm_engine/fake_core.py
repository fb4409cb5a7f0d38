"""An engine core whose outputs are supplied by tests of the drivers that feed it."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.lazily import Lazily

engine_types = Lazily("vllm.v1.engine")
engine_exceptions = Lazily("vllm.v1.engine.exceptions")


class FakeCore:
    """Stands for AsyncLLM and the parts of it that the drivers use."""

    def __init__(self) -> None:
        self.engine_core = self.input_processor = self.vllm_config = self.scheduler_config = self.model_config = self
        self.output_handler: asyncio.Task[None] | None = None
        self.output_processor = SimpleNamespace(tracing_enabled=False)
        self.logger_manager = None
        self.errored = False
        self.max_num_queued_reqs: int | None = None
        self.max_num_queued_tokens: int | None = None
        self.added: list[Any] = []
        self.aborted: list[str] = []
        self.accepts = 10
        """How many more sequences the core takes."""
        self._outputs: asyncio.Queue[Any] = asyncio.Queue()

    def get_vocab_size(self) -> int:
        return 300

    async def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate", "embed")

    async def get_weight_version(self) -> str:
        return "initial"

    def assign_request_id(self, request: Any) -> None:
        request.external_req_id, request.request_id = request.request_id, f"{request.request_id}-core"

    async def add_request_async(self, request: Any) -> None:
        self.accepts -= 1
        if self.accepts < 0:
            raise ValueError("no more")
        self.added.append(request)

    async def abort_requests_async(self, request_ids: list[str]) -> None:
        self.aborted += request_ids

    async def get_output_async(self) -> Any:
        output = await self._outputs.get()
        if isinstance(output, Exception):
            raise output
        return output

    def send(self, outputs: list[Any], **fields: Any) -> None:
        """Send one message."""
        self._outputs.put_nowait(engine_types.EngineCoreOutputs(outputs=outputs, **fields))

    def die(self) -> None:
        """Fail to send anything more."""
        self._outputs.put_nowait(engine_exceptions.EngineDeadError())
