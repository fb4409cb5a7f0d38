"""A worker with simulated steps that processes pictures as one with vLLM: `python -m benchmarks.picture_worker`.

Its arguments are a step's milliseconds, the number of sequences, and the directory of a model that sees. Pictures go
through all that a worker with vLLM does with them, in its process and in forked ones; only the engine is none.
"""

import asyncio
import sys
from collections.abc import Sequence
from types import SimpleNamespace

import uvloop
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.tokenizers import cached_tokenizer_from_config

from tokenwire.process.shared_options import MAX_MEDIA_PIXELS_DEFAULT
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import EngineSequence
from tokenwire.worker.media.processor_pool import default_processes
from tokenwire.worker.server import WorkerServer
from tokenwire.worker.settings import WorkerSettings
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.media import SimulatedMedia
from tokenwire.worker.simulated_engine.model import load_model
from tokenwire.worker.simulated_engine.settings import SimulationSettings
from tokenwire.worker.vllm_engine.media import VllmMedia

_IMAGE_TOKENS = 64
_MEMORY_BYTES = 256 * 2**20


class _ProcessedMedia(SimulatedMedia):
    """Simulated ids for pictures, after vLLM's processor has made its own of them."""

    def __init__(self, folder: str) -> None:
        super().__init__(load_model(None, None), _IMAGE_TOKENS, _MEMORY_BYTES)
        config = AsyncEngineArgs(model=folder, dtype="float32", limit_mm_per_prompt={"image": 1}).create_model_config()
        tokenizer = cached_tokenizer_from_config(config)
        processor = MULTIMODAL_REGISTRY.create_processor(config, tokenizer=tokenizer)
        renderer = SimpleNamespace(get_mm_processor=lambda: processor)
        self._real = VllmMedia(
            SimpleNamespace(renderer=renderer, model_config=config),
            _MEMORY_BYTES,
            default_processes(),
            MAX_MEDIA_PIXELS_DEFAULT,
        )
        self._real._received = self._received
        self._prompt = tokenizer.encode("<|im_start|>user\n<image>What is this?<|im_end|>\n")

    async def start(self) -> None:
        """Start the processes."""
        self._real.start()

    async def expand(self, request: pb.ExpandRequest) -> pb.ExpandResponse:
        """Return the expanded prompt, once its picture has been processed."""
        await self.process(request.media)
        return await super().expand(request)

    async def process(self, media: Sequence[pb.MediaItem]) -> None:
        """Make vLLM's input of a picture, or find it."""
        await self._real.prompt(self._prompt, media)


class _Engine(SimulatedEngine):
    def __init__(self, settings: SimulationSettings, media: _ProcessedMedia) -> None:
        super().__init__(settings)
        self._processed = media

    async def start(self) -> None:
        """Start, with the processes."""
        await super().start()
        self._media = self._processed
        await self._processed.start()

    async def submit(self, submit: pb.Submit, sequences: list[EngineSequence]) -> None:
        """Queue a request, with the input that an engine would get."""
        if submit.media:
            await self._processed.process(submit.media)
        await super().submit(submit, sequences)


async def main(step_ms: float, max_num_seqs: int, folder: str) -> None:
    """Run until killed."""
    settings = SimulationSettings(
        step_ms=step_ms, prefill_tokens_per_s=0, max_num_seqs=max_num_seqs, image_tokens=_IMAGE_TOKENS
    )
    server = WorkerServer(_Engine(settings, _ProcessedMedia(folder)), WorkerSettings("127.0.0.1:0"))
    await server.startup()
    print("ready:", server.address, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
