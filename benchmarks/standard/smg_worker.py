"""A worker of SMG's with tokenwire's simulated engine.

It speaks as much of SMG's protocol for vLLM as SMG needs to route and stream. `python -m
benchmarks.standard.smg_worker MODEL NAME SCRIPT STEP_MS MAX_NUM_SEQS MAX_MODEL_LEN` runs it where smg-grpc-proto is
installed.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import uvloop
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health

from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import EngineSequence
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.settings import SimulationSettings

smg: Any = import_module("smg_grpc_proto.generated.vllm_engine_pb2")
smg_grpc: Any = import_module("smg_grpc_proto.generated.vllm_engine_pb2_grpc")

_REASONS = {pb.FINISH_REASON_STOP: "stop", pb.FINISH_REASON_LENGTH: "length"}

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Output = tuple[list[int], pb.Finish | None, Any]
"""New tokens of a sequence, its end, and the tokens' log-probabilities in SMG's shape, if it asked for them."""


class SmgWorker(smg_grpc.VllmEngineServicer):  # type: ignore[misc]
    """Streams the steps of one engine: one message for each token of each stream, as SMG's own servicer does."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self._engine = engine
        self._outputs: dict[EngineSequence, asyncio.Queue[Output]] = {}

    async def drive(self) -> None:
        """Deal the engine's steps out until it stops."""
        async for step in self._engine.steps():
            ends, logprobs = dict(step.finishes), dict(step.logprobs)
            for sequence, tokens in zip(step.sequences, step.token_ids, strict=True):
                rows = logprobs.get(sequence)
                self._put(sequence, (tokens, ends.pop(sequence, None), rows and _output_logprobs(tokens, rows)))
            for sequence, finish in ends.items():
                self._put(sequence, ([], finish, None))

    def _put(self, sequence: EngineSequence, output: Output) -> None:
        if queue := self._outputs.get(sequence):
            queue.put_nowait(output)

    async def Generate(self, request: Any, context: Context) -> AsyncIterator[Any]:
        """Generate one sequence."""
        params, prompt = request.sampling_params, request.tokenized.input_ids
        submit = pb.Submit(request_id=request.request_id, slots=[0], prompt_token_ids=prompt)
        asked = pb.SamplingParams(max_tokens=params.max_tokens, ignore_eos=params.ignore_eos, temperature=1.0)
        if params.HasField("logprobs"):
            asked.logprobs = params.logprobs
        submit.sampling_params.CopyFrom(asked)
        sequence = EngineSequence(FrameBuffer(), 0, request.request_id, 0)
        queue = self._outputs[sequence] = asyncio.Queue()
        every: list[int] = []
        try:
            await self._engine.submit(submit, [sequence])
            finish = None
            while finish is None:
                tokens, finish, logprobs = await queue.get()
                every += tokens
                if request.stream and tokens:
                    chunk = smg.GenerateStreamChunk(
                        token_ids=tokens,
                        prompt_tokens=len(prompt),
                        completion_tokens=len(tokens),
                        output_logprobs=logprobs,
                    )
                    yield smg.GenerateResponse(chunk=chunk)
            yield smg.GenerateResponse(
                complete=smg.GenerateComplete(
                    output_ids=tokens if request.stream else every,
                    finish_reason=_REASONS.get(finish.reason, "error"),
                    prompt_tokens=len(prompt),
                    completion_tokens=len(tokens if request.stream else every),
                )
            )
        finally:
            del self._outputs[sequence]
            await self._engine.abort([sequence])

    async def HealthCheck(self, request: Any, context: Context) -> Any:
        """Return that it is healthy."""
        return smg.HealthCheckResponse(healthy=True)

    async def Abort(self, request: Any, context: Context) -> Any:
        """End nothing: the call that SMG drops has ended by itself."""
        return smg.AbortResponse()

    async def GetModelInfo(self, request: Any, context: Context) -> Any:
        """Describe the model."""
        model = self._engine.describe()
        return smg.GetModelInfoResponse(
            model_path=model.root,
            tokenizer_path=model.root,
            served_model_name=model.names[0],
            model_type="llama",
            architectures=["LlamaForCausalLM"],
            is_generation=True,
            max_context_length=model.max_model_len,
            max_req_input_len=model.max_model_len,
            vocab_size=model.max_token_id + 1,
        )

    async def GetServerInfo(self, request: Any, context: Context) -> Any:
        """Describe the server."""
        return smg.GetServerInfoResponse(server_type="vllm-grpc", data_parallel_size=1)


def _output_logprobs(tokens: list[int], rows: pb.LogprobRows) -> Any:
    """Return a step's rows, whose first column is the sampled token, in SMG's shape."""
    width = rows.width
    starts = range(0, len(rows.token_ids), width)
    return smg.OutputLogProbs(
        token_ids=tokens,
        token_logprobs=[rows.logprobs[start] for start in starts],
        top_logprobs=[
            smg.TopLogProbs(
                token_ids=rows.token_ids[start + 1 : start + width], values=rows.logprobs[start + 1 : start + width]
            )
            for start in starts
        ],
    )


async def serve(model: Path, name: str, script: Path, step_ms: float, max_num_seqs: int, max_model_len: int) -> None:
    """Serve until the process is ended."""
    engine = SimulatedEngine(
        SimulationSettings(
            model_dir=model,
            served_model_names=(name,),
            script=tuple(json.loads(script.read_text())),
            step_ms=step_ms,
            prefill_tokens_per_s=0,
            max_num_seqs=max_num_seqs,
            max_model_len=max_model_len,
        )
    )
    await engine.start()
    server, worker, healthy = grpc.aio.server(), SmgWorker(engine), health.HealthServicer()
    smg_grpc.add_VllmEngineServicer_to_server(worker, server)
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    await healthy.set("", health_pb2.HealthCheckResponse.SERVING)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"ready: 127.0.0.1:{port}", flush=True)
    await worker.drive()


if __name__ == "__main__":
    folder, served_name, script_path, step, *limits = sys.argv[1:]
    uvloop.run(serve(Path(folder), served_name, Path(script_path), float(step), *map(int, limits)))
