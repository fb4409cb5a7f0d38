"""An engine without a model or a GPU: seeded tokens, simulated time, queue and KV cache, faults on command.

For load tests, fault tests and benchmarks of everything around an engine. Its output is a pure function of the
preceding ids and of seeds, so it can be verified, and continued on another engine.
One class beyond the usual length, because it implements every method of the Engine interface.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from prometheus_client.core import Metric

import tokenwire
from tokenwire.errors import EngineFailed, InvalidRequest, Overloaded, Unavailable, Unsupported
from tokenwire.protocol.packed_ids import prompt_ids
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.cache.prefix_cache import CacheChange, OnKvEvents
from tokenwire.worker.engine.interface import Engine, EngineSequence, PauseMode, Step
from tokenwire.worker.simulated_engine.cache import KvCache
from tokenwire.worker.simulated_engine.faults import FaultKind, FaultPlan, FaultSchedule
from tokenwire.worker.simulated_engine.grammars import Grammars, can_use_grammars
from tokenwire.worker.simulated_engine.media import SimulatedMedia
from tokenwire.worker.simulated_engine.metrics import families
from tokenwire.worker.simulated_engine.model import SimulatedModel, load_model
from tokenwire.worker.simulated_engine.pacing import StepPacer
from tokenwire.worker.simulated_engine.pooling import PoolPlanner
from tokenwire.worker.simulated_engine.replies import ScriptedReplies
from tokenwire.worker.simulated_engine.requests import RequestPlanner
from tokenwire.worker.simulated_engine.scheduler import Scheduler
from tokenwire.worker.simulated_engine.script_searches import ScriptSearches
from tokenwire.worker.simulated_engine.scripts import Scripts
from tokenwire.worker.simulated_engine.settings import BLOCK_SIZE, SimulationSettings
from tokenwire.worker.simulated_engine.token_log import TokenLog, open_log
from tokenwire.worker.simulated_engine.tokens import Script

__all__ = ["FaultPlan", "SimulatedEngine", "SimulationSettings"]

_DEFAULT_KV_TOKENS = 524288
_WEIGHT_STAGES = frozenset({"init", "start", "start_draft", "update", "finish", "shutdown"})
_ABORTED = pb.Finish(reason=pb.FINISH_REASON_ABORT)
_MEMORY_TAGS = frozenset({"weights", "kv_cache"})


class SimulatedEngine(Engine):
    """Runs a scheduler in real time, driven by the iteration of `steps`."""

    def __init__(self, settings: SimulationSettings, pacer: StepPacer | None = None) -> None:
        self.steps_total = 0
        """Steps that computed something."""
        self.tokens_total = 0
        """Generated tokens."""
        self.requests_total = 0
        """Accepted requests."""
        self.prompt_tokens_total = 0
        """Tokens of accepted prompts, counted for each sequence."""
        self._settings = settings
        self._faults = FaultSchedule(settings.faults)
        self._model: SimulatedModel | None = None
        self._planner: RequestPlanner | None = None
        self._pool_planner: PoolPlanner | None = None
        """None: the engine generates."""
        self._searches: ScriptSearches | None = None
        self._scheduler: Scheduler | None = None
        self._media: SimulatedMedia | None = None
        self._kv = KvCache(0)
        self._log: TokenLog | None = None
        self._pacer = pacer or StepPacer(settings.step_ms / 1000)
        self._frozen = False
        self._asleep: frozenset[str] = frozenset()
        self._loras: dict[int, pb.LoraAdapter] = {}
        self.loaded_on_demand: set[int] = set()
        """Those that requests brought, and no operation."""
        self._updating, self._weights = False, ""
        self._failure: str | None = None
        self._on_kv_events: OnKvEvents | None = None
        self._stopped = asyncio.Event()
        self._wake = asyncio.Event()
        self._drained = asyncio.Event()

    @property
    def open_sequences(self) -> int:
        """Sequences that have not ended."""
        return self._scheduler.open_sequences if self._scheduler else 0

    async def start(self) -> None:
        """Load the tokenizer. Raises EngineFailed."""
        settings = self._settings
        model = await asyncio.to_thread(load_model, settings.model_dir, settings.max_model_len)
        kv_tokens = settings.kv_tokens or max(_DEFAULT_KV_TOKENS, model.max_model_len + BLOCK_SIZE)
        capacity = kv_tokens // BLOCK_SIZE
        if capacity * BLOCK_SIZE < model.max_model_len:
            raise EngineFailed(
                f"the KV cache of {capacity * BLOCK_SIZE} tokens is smaller than one context of {model.max_model_len}; "
                "raise kv_tokens or lower max_model_len"
            )
        for token in settings.script or ():
            if token > model.max_token_id:
                raise EngineFailed(f"script has token id {token}, but the vocabulary ends at {model.max_token_id}")
        replies = await asyncio.to_thread(ScriptedReplies, settings.replies, model) if settings.replies else None
        grammars = Grammars(settings.model_dir) if can_use_grammars() and model.eos_token_id is not None else None
        if settings.token_log is not None:
            self._log = open_log(settings.token_log)
        self._model = model
        tokens, memory_bytes, seconds = settings.image_tokens, settings.received_media_bytes, settings.image_ms / 1000
        embeds = settings.image_embeds
        self._media = SimulatedMedia(model, tokens, memory_bytes, seconds, embeds) if tokens else None
        self._planner = RequestPlanner(settings, model)
        self._pool_planner = PoolPlanner(settings, model) if settings.embedding_width else None
        self._searches = ScriptSearches(Scripts(self._planner, replies, grammars))
        self._kv = KvCache(capacity)
        self._scheduler = Scheduler(self._kv, settings.max_num_seqs, settings.prefill_per_step, model.words)

    def describe(self) -> pb.Model:
        """Describe the model."""
        model = self._loaded()
        return pb.Model(
            names=self._settings.served_model_names or (model.name,),
            root=model.root,
            max_model_len=model.max_model_len,
            max_token_id=model.max_token_id,
            default_sampling_params_json=json.dumps(model.default_sampling_params),
            max_num_seqs=self._settings.max_num_seqs,
            engine=f"simulated {tokenwire.__version__}",
            weights_digest=self._settings.weights_digest,
            dtype="float32",
            quantization="none",
            tasks=("generate",) if self._pool_planner is None else self._pool_planner.tasks,
            pooling=None if self._pool_planner is None else self._pool_planner.describe(),
            media=() if self._media is None else self._media.kinds(),
        )

    @property
    def media(self) -> SimulatedMedia | None:
        """The pictures of prompts, if the settings have any."""
        return self._media

    def capabilities(self) -> pb.EngineCapabilities:
        """Return safe seeds and batch invariance; the settings decide about the noise, and what is missing."""
        return pb.EngineCapabilities(
            seeds=True,
            positional_seeds=not self._settings.generators,
            batch_invariant=True,
            unsupported=(*self._settings.unsupported, *(() if can_use_grammars() else ("structured_outputs",))),
            seeded_noise=f"simulated {self._settings.seeds}",
            cache_block_tokens=BLOCK_SIZE,
        )

    def configuration(self) -> dict[str, Any]:
        """Return the configuration of an engine of one process that accepts adapters."""
        return self._loaded().configuration()

    def metrics(self) -> list[Metric]:
        """Return vLLM's most used metrics."""
        load = pb.Load() if self._scheduler is None else self._scheduler.load()
        own = () if self._media is None else self._media.metrics()
        return [*families(self.describe().names[0], load, self.prompt_tokens_total, self.tokens_total), *own]

    def tokenizer_files(self) -> dict[str, bytes]:
        """Return the model's tokenizer files, or those of the built-in tokenizer."""
        return dict(self._loaded().files)

    async def submit(self, submit: pb.Submit, sequences: list[EngineSequence]) -> None:
        """Queue one request."""
        if self._pool_planner is not None:
            raise InvalidRequest("This model does not support generation")
        if submit.media:
            submit = await self._expanded(submit)
        searches, scripts, aborted = self._searches, list[Script](), list[EngineSequence]()
        if searches is not None and searches.may_have(submit):
            scripts, aborted = await searches.find(submit, sequences, self._weights)
        scheduler, planner = self._running(), self._planner
        if planner is None:
            raise Unavailable("the engine has not started")
        self._check_queue(scheduler, len(sequences))
        number = self.requests_total + 1
        fails_after = self._faults.error_after(number)
        simulated_sequences = planner.plan(submit, sequences, fails_after, self._weights, scripts)
        self.requests_total = number
        prompt = prompt_ids(submit)
        self.prompt_tokens_total += len(prompt) * len(sequences)
        self._faults.on_prompt(prompt)
        self._load_on_demand(submit.lora)
        if self._log is not None:
            self._log.on_submit(submit, sequences)
        scheduler.add(simulated_sequences)
        if aborted:
            scheduler.end(aborted, _ABORTED)
        self._wake.set()

    async def pool(self, pool: pb.Pool, sequences: list[EngineSequence]) -> None:
        """Queue the inputs of a command."""
        scheduler = self._running()
        if self._pool_planner is None:
            raise InvalidRequest("This model does not support pooling")
        self._check_queue(scheduler, len(sequences))
        inputs = self._pool_planner.plan(pool, sequences, self._weights)
        self.requests_total += 1
        self.prompt_tokens_total += len(pool.token_ids)
        self._faults.on_prompt(pool.token_ids)
        self._load_on_demand(pool.lora)
        scheduler.add(inputs)
        self._wake.set()

    def _check_queue(self, scheduler: Scheduler, sequences: int) -> None:
        limit = self._settings.max_queue
        if limit and sequences > scheduler.free_capacity + limit:
            raise Overloaded(f"the engine's queue is full: {limit} sequences are waiting", retry_after_s=1.0)

    def _load_on_demand(self, adapter: pb.LoraAdapter) -> None:
        if adapter.id and adapter.id not in self._loras:
            self._loras[adapter.id] = adapter
            self.loaded_on_demand.add(adapter.id)

    async def _expanded(self, submit: pb.Submit) -> pb.Submit:
        """Return a request with the ids of its pictures."""
        if self._media is None:
            raise InvalidRequest("This model takes text only.", param="messages")
        whole = pb.Submit()
        whole.CopyFrom(submit)
        token_ids, _ = await self._media.prompt(submit.prompt_token_ids, submit.media, submit.media_end)
        whole.prompt_token_ids[:] = token_ids
        return whole

    async def abort(self, sequences: list[EngineSequence]) -> None:
        """Abort sequences."""
        if self._searches is not None:
            self._searches.abort(sequences)
        if self._scheduler is not None:
            self._scheduler.end(sequences, _ABORTED)
            self._wake.set()

    async def steps(self) -> AsyncIterator[Step]:
        """Yield steps until `stop`, one per step time while there is work."""
        scheduler = self._running()
        while not self._stopped.is_set():
            computing = scheduler.active_sequences > 0 and not self._frozen
            if not scheduler.active_sequences:
                self._drained.set()
            if not computing and not scheduler.has_finishes:
                self._pacer.on_idle()
                await self._wake.wait()
                self._wake.clear()
                continue
            if computing:
                await self._inject_faults()
                await self._pacer.wait(self.steps_total)
            if self._stopped.is_set():
                return
            if self._failure is not None:
                yield scheduler.idle_step()
                raise EngineFailed(self._failure)
            # Checked again: all may have been aborted or paused during the step's time.
            yield self._compute(scheduler) if computing and not self._frozen else scheduler.idle_step()

    def _compute(self, scheduler: Scheduler) -> Step:
        step = scheduler.step()
        self.steps_total += 1
        self.tokens_total += len(step.token_ids)
        self._publish_kv_events()
        if self._log is not None:
            self._log.on_step(step)
        return step

    def subscribe_kv_events(self, on_change: OnKvEvents) -> bool:
        """Call `on_change` with every change of the prefix cache, if the settings enable it."""
        if self._settings.kv_events:
            self._on_kv_events = on_change
        return self._settings.kv_events

    def _publish_kv_events(self) -> None:
        if self._on_kv_events is not None and self._kv.change:
            change, self._kv.change = self._kv.change, CacheChange()
            self._on_kv_events(change)

    async def _inject_faults(self) -> None:
        """Trigger the faults that are due before the next step."""
        for fault in self._faults.due(self.steps_total + 1, self.tokens_total, self.requests_total):
            if fault.kind is FaultKind.SLOW:
                self._pacer.slow_down(fault, self.steps_total)
            elif fault.kind is FaultKind.CRASH:
                self._fail("a simulated fault crashed the engine")
            elif fault.kind is FaultKind.EXIT:
                os._exit(fault.code)
            elif fault.kind is FaultKind.HANG:
                await self._stopped.wait()

    def _fail(self, message: str) -> None:
        self._failure = message
        if self._scheduler is not None:
            self._scheduler.end_all(pb.Finish(reason=pb.FINISH_REASON_ERROR, error_message=message, handed_back=True))
        self._drained.set()

    async def stop(self) -> None:
        """End `steps`."""
        self._stopped.set()
        self._wake.set()
        self._drained.set()
        if self._searches is not None:
            await self._searches.close()
        if self._log is not None:
            self._log.close()
            self._log = None

    # Admin operations.

    async def pause(self, mode: PauseMode, clear_cache: bool) -> None:
        """Pause generation; new requests are held until `resume`."""
        scheduler = self._running()
        scheduler.holding = True
        self._frozen = mode is PauseMode.KEEP
        if mode is PauseMode.ABORT:
            scheduler.end_all(_ABORTED)
        elif mode is PauseMode.WAIT and scheduler.active_sequences:
            self._drained.clear()
            self._wake.set()
            await self._drained.wait()
            self._running()  # raises when the engine ended meanwhile
        self._wake.set()
        if clear_cache and scheduler.holding:
            scheduler.reset_cache(preempt_running=True)
            self._publish_kv_events()

    async def resume(self) -> None:
        """Resume generation, and release held requests."""
        self._running().release_held()
        self._frozen = False
        self._asleep = frozenset()
        self._drained.set()
        self._wake.set()

    async def is_paused(self) -> bool:
        """Return whether generation is paused."""
        return self._running().holding

    async def sleep(self, level: int, mode: PauseMode) -> None:
        """Pause; there is no memory to free, but the prefix cache is lost from level 1 on."""
        await self.pause(mode, clear_cache=level >= 1)
        self._asleep = _MEMORY_TAGS if level >= 1 else frozenset()

    async def wake_up(self, tags: list[str]) -> None:
        """Undo `sleep`; generation resumes once all memory is back."""
        known = _MEMORY_TAGS | {"scheduling"}
        unknown = set(tags) - known
        if unknown:
            raise InvalidRequest(f"unknown tags {sorted(unknown)}; known are {sorted(known)}", param="tags")
        self._asleep = self._asleep - set(tags) if tags else frozenset()
        if not self._asleep:
            await self.resume()

    async def is_sleeping(self) -> bool:
        """Return whether the engine sleeps; as in vLLM, a paused one does."""
        return bool(self._asleep) or self._running().holding

    async def reset_cache(self, reset_running_requests: bool, reset_external: bool) -> bool:
        """Clear the prefix cache and return whether it is empty now; there is no external one."""
        empty = self._running().reset_cache(reset_running_requests)
        self._publish_kv_events()
        return empty

    async def load_lora(self, adapter: pb.LoraAdapter) -> bool:
        """Load an adapter; its id changes the tokens as a seed would."""
        self._loras[adapter.id] = adapter
        return True

    async def unload_lora(self, adapter_id: int) -> bool:
        """Unload an adapter; return whether it was loaded."""
        self.loaded_on_demand.discard(adapter_id)
        return self._loras.pop(adapter_id, None) is not None

    async def list_loras(self) -> list[int]:
        """Return the ids of loaded adapters."""
        return sorted(self._loras)

    async def load_weights(self, path: str) -> None:
        """Use the directory's name as its weights: they change the tokens of new requests as a seed would."""
        self._running()
        self._weights = Path(path).name

    async def update_weights(self, stage: str, arguments: dict[str, Any]) -> None:
        """Run one stage of a weight update; there are no weights, so only the label changes."""
        if stage not in _WEIGHT_STAGES:
            raise Unsupported(f"a simulated engine has no weight update stage {stage!r}")
        if stage in ("update", "finish") and not self._updating:
            raise InvalidRequest(f"weight update stage {stage!r} needs a start before it", param="stage")
        if stage in ("start", "start_draft"):
            self._updating = True
        elif stage in ("finish", "shutdown"):
            self._updating = False
        version = arguments.get("weight_version")
        if stage == "finish" and version is not None:
            await self.set_weight_version(str(version))

    async def get_weight_version(self) -> str:
        """Return the label of the weights."""
        return self._running().weight_version

    async def set_weight_version(self, version: str) -> None:
        """Label the weights; the tokens do not change."""
        self._running().weight_version = version

    async def collective_rpc(
        self, method: str, timeout_s: float | None, args: list[Any], kwargs: dict[str, Any]
    ) -> list[Any]:
        """Raise Unsupported: a simulated engine has no processes."""
        raise Unsupported(f"a simulated engine has no method {method!r}: it has no processes to call")

    def _loaded(self) -> SimulatedModel:
        if self._model is None:
            raise Unavailable("the engine has not started")
        return self._model

    def _running(self) -> Scheduler:
        if self._failure is not None:
            raise EngineFailed(self._failure)
        if self._scheduler is None or self._stopped.is_set():
            raise Unavailable("the engine has not started, or has stopped")
        return self._scheduler
