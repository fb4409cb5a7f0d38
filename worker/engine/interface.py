"""The engine interface: prompt ids in, whole engine steps out, one terminal event per sequence."""

import enum
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from prometheus_client.core import Metric

from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.media import EngineMedia


@dataclass(frozen=True, slots=True, eq=False)
class EngineSequence:
    """One sequence of a request: the key under which the engine reports its tokens.

    Compared by identity. An engine reads nothing of it but `index` and `sampled_only`.
    """

    frame_buffer: FrameBuffer
    slot: int
    request_id: str
    index: int
    """Position among the request's sequences; sequence i samples with seed + i."""
    sampled_only: bool = False
    """Whether its log-probabilities are those of sampled tokens alone, in `Step.scores`."""


@dataclass(slots=True)
class Step:
    """The output of one engine step, as parallel lists; no sequence appears after its finish."""

    sequences: list[EngineSequence] = field(default_factory=list)
    token_ids: list[list[int]] = field(default_factory=list)
    """New tokens, parallel to `sequences`; a list may be empty."""
    finishes: list[tuple[EngineSequence, pb.Finish]] = field(default_factory=list)
    """Sequences that ended; the frame buffer fills in the finish's slot."""
    prefills: list[tuple[EngineSequence, pb.PrefillInfo]] = field(default_factory=list)
    """Sequences whose first tokens are in this step."""
    logprobs: list[tuple[EngineSequence, pb.LogprobRows]] = field(default_factory=list)
    """Rows for the new tokens of sequences that requested log-probabilities."""
    scores: list[tuple[EngineSequence, list[float]]] = field(default_factory=list)
    """Log-probabilities of the new tokens of sequences that want no more than these: no row is made of them."""
    load: pb.Load = field(default_factory=pb.Load)
    weight_version: str = ""


READ_WEIGHTS = frozenset({"load_model", "reload_weights", "update_weights_from_path"})
"""Methods of an engine's processes that read weights."""


class PauseMode(enum.StrEnum):
    """What a pause does to running sequences, with vLLM's values."""

    ABORT = "abort"
    WAIT = "wait"
    KEEP = "keep"


class Engine(Protocol):
    """An inference engine. All methods run on one event loop.

    Lifecycle: `start`, then `submit`, `abort` and admin operations while `steps` is iterated, then `stop`.
    """

    async def start(self) -> None:
        """Load the model and be ready for `submit`. Raises EngineFailed with a message that names a remedy."""

    def describe(self) -> pb.Model:
        """Describe the started model; the tokenizer digest is left empty."""

    def capabilities(self) -> pb.EngineCapabilities:
        """Return how the started engine samples, and what it cannot do."""

    def configuration(self) -> dict[str, Any]:
        """Return the configuration that clients may read, with vLLM's names: model_config, parallel_config (world_size,
        world_size_across_dp, data_parallel_size), device_config (device_type), lora_config and weight_transfer_config
        (None where there is none)."""

    def metrics(self) -> Iterable[Metric]:
        """Return the engine's Prometheus metrics, under vLLM's names. Called from any thread."""

    def tokenizer_files(self) -> dict[str, bytes]:
        """Return the files from which a coordinator rebuilds this engine's tokenizer and chat template exactly."""

    @property
    def media(self) -> EngineMedia | None:
        """What processes media of prompts; None if the model takes text only."""

    async def submit(self, submit: pb.Submit, sequences: list[EngineSequence]) -> None:
        """Start one request's sequences (one per slot of the submit).

        Raises InvalidRequest, MediaMissing, Overloaded, Unavailable or EngineFailed; then no sequence was started.
        Other methods are called meanwhile. If it is cancelled, `abort` ends what was started.
        """

    async def pool(self, pool: pb.Pool, sequences: list[EngineSequence]) -> None:
        """Start inputs (one per slot of the command), each of which ends with its result; otherwise as `submit`."""

    async def abort(self, sequences: list[EngineSequence]) -> None:
        """Abort sequences; their ABORT finish comes in a later step. Unknown ones are ignored.

        One that is being submitted ends as soon as it has started, unless it is refused.
        """

    def steps(self) -> AsyncIterator[Step]:
        """Yield steps until `stop`. When the engine dies, yield an ERROR finish for every live sequence
        and raise EngineFailed."""

    async def stop(self) -> None:
        """Stop the engine and free its memory. Safe to call twice, and before `start`."""

    # Admin operations. Raises Unsupported where the engine lacks a feature.

    async def pause(self, mode: PauseMode, clear_cache: bool) -> None:
        """Pause generation."""

    async def resume(self) -> None:
        """Resume generation."""

    async def is_paused(self) -> bool:
        """Return whether generation is paused."""

    async def sleep(self, level: int, mode: PauseMode) -> None:
        """Free memory: level 0 only pauses, 1 offloads weights, 2 drops them."""

    async def wake_up(self, tags: list[str]) -> None:
        """Undo `sleep`, whole or by tags."""

    async def is_sleeping(self) -> bool:
        """Return whether the engine sleeps."""

    async def reset_cache(self, reset_running_requests: bool, reset_external: bool) -> bool:
        """Clear the prefix cache; return whether it is empty now."""

    async def load_lora(self, adapter: pb.LoraAdapter) -> bool:
        """Load an adapter; return whether it is loaded now."""

    async def unload_lora(self, adapter_id: int) -> bool:
        """Unload an adapter; return whether it was loaded."""

    async def list_loras(self) -> list[int]:
        """Return the ids of loaded adapters."""

    async def load_weights(self, path: str) -> None:
        """Replace the weights with those of a directory; "" restores the initial ones."""

    async def update_weights(self, stage: str, arguments: dict[str, Any]) -> None:
        """Run one stage of a weight update: init, start, start_draft, update, finish or shutdown."""

    async def get_weight_version(self) -> str:
        """Return the label of the current weights."""

    async def set_weight_version(self, version: str) -> None:
        """Label the current weights; later steps carry the label."""

    async def collective_rpc(
        self, method: str, timeout_s: float | None, args: list[Any], kwargs: dict[str, Any]
    ) -> list[Any]:
        """Call a method on every process of the engine; return their results."""
