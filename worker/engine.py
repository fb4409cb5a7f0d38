"""The seam to an engine: prompt ids in, whole engine steps out, one terminal event per sequence."""

import enum
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from prometheus_client.core import Metric

from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.frame_buffer import Outbox


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    """One sequence of a request: the key under which the engine reports its tokens.

    Compared by identity. An engine never looks inside but at `index`.
    """

    outbox: Outbox
    slot: int
    request_id: str
    index: int
    """Position among the request's sequences; sequence i samples with seed + i."""


@dataclass(slots=True)
class Step:
    """What one engine step produced, as parallel lists; no sequence appears after its finish."""

    sequences: list[Sequence] = field(default_factory=list)
    token_ids: list[list[int]] = field(default_factory=list)
    """New tokens, parallel to `sequences`; may be empty lists."""
    finishes: list[tuple[Sequence, pb.Finish]] = field(default_factory=list)
    """Sequences that ended; the finish's slot is filled in later."""
    prefills: list[tuple[Sequence, pb.PrefillInfo]] = field(default_factory=list)
    """Sequences whose first tokens are in this step."""
    logprobs: list[tuple[Sequence, pb.LogprobRows]] = field(default_factory=list)
    """Rows for the new tokens of sequences that asked for log-probabilities."""
    load: pb.Load = field(default_factory=pb.Load)
    weight_version: str = ""


class PauseMode(enum.StrEnum):
    """What a pause does to running sequences; the values are vLLM's."""

    ABORT = "abort"
    WAIT = "wait"
    KEEP = "keep"


class Engine(Protocol):
    """An inference engine. All methods run on one event loop.

    Life: `start`, then `submit`, `abort` and control calls while somebody iterates `steps`, then `stop`.
    """

    async def start(self) -> None:
        """Load the model and be ready for `submit`. Raises EngineFailed with a message that says what to do."""

    def describe(self) -> pb.Model:
        """Describe the started model; the tokenizer digest is left empty."""

    def capabilities(self) -> pb.EngineCapabilities:
        """Say how the started engine draws tokens."""

    def configuration(self) -> dict[str, Any]:
        """Configuration that clients ask for, with vLLM's names: model_config, parallel_config (world_size,
        world_size_across_dp, data_parallel_size), device_config (device_type), lora_config and weight_transfer_config
        (None where there is none)."""

    def metrics(self) -> Iterable[Metric]:
        """Return what the engine tells Prometheus, under vLLM's names. Called from any thread."""

    def tokenizer_files(self) -> dict[str, bytes]:
        """Files from which a coordinator rebuilds exactly this engine's tokenizer and chat template."""

    async def submit(self, submit: pb.Submit, sequences: list[Sequence]) -> None:
        """Start one request's sequences (one per slot of the submit).

        Raises InvalidRequest, Overloaded, Unavailable or EngineFailed; then no sequence was started.
        """

    async def abort(self, sequences: list[Sequence]) -> None:
        """Stop computing these sequences. Their ABORT finish is in a later step; unknown ones are ignored."""

    def steps(self) -> AsyncIterator[Step]:
        """Yield steps until `stop`. When the engine dies, yield an ERROR finish for every live sequence
        and raise EngineFailed."""

    async def stop(self) -> None:
        """End the engine and free its memory. Safe to call twice, and before `start`."""

    # Control. Raises Unsupported where an engine has no such thing.

    async def pause(self, mode: PauseMode, clear_cache: bool) -> None:
        """Stop stepping."""

    async def resume(self) -> None:
        """Go on stepping."""

    async def is_paused(self) -> bool:
        """Tell whether stepping is paused."""

    async def sleep(self, level: int, mode: PauseMode) -> None:
        """Free memory: level 0 only pauses, 1 offloads weights, 2 drops them."""

    async def wake_up(self, tags: list[str]) -> None:
        """Undo `sleep`, whole or by tags."""

    async def is_sleeping(self) -> bool:
        """Tell whether the engine sleeps."""

    async def reset_cache(self, reset_running_requests: bool, reset_external: bool) -> bool:
        """Clear the prefix cache; returns whether it is empty now."""

    async def load_lora(self, adapter: pb.LoraAdapter) -> bool:
        """Load an adapter; returns whether it is loaded now."""

    async def unload_lora(self, adapter_id: int) -> bool:
        """Unload an adapter; returns whether it was there."""

    async def list_loras(self) -> list[int]:
        """List ids of loaded adapters."""

    async def load_weights(self, path: str) -> None:
        """Read weights from a directory, in the place of the ones that are there; "": those of the start."""

    async def update_weights(self, stage: str, arguments: dict[str, Any]) -> None:
        """Run one stage of a weight update: init, start, start_draft, update, finish or shutdown."""

    async def get_weight_version(self) -> str:
        """Return the label of the current weights."""

    async def set_weight_version(self, version: str) -> None:
        """Label the current weights; later steps carry the label."""

    async def collective_rpc(
        self, method: str, timeout_s: float | None, args: list[Any], kwargs: dict[str, Any]
    ) -> list[Any]:
        """Call a method on every process of the engine; returns their results."""
