"""The engine interface implemented with vLLM's AsyncLLM, built from the operator's own vLLM arguments.

One class beyond the usual length, because start, requests and stop change what it knows of the same engine.
"""

import asyncio
import inspect
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import vllm
from prometheus_client.core import Metric
from vllm.inputs import tokens_input
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.metrics.prometheus import get_prometheus_registry

from tokenwire.errors import EngineFailed, InvalidRequest, Unavailable
from tokenwire.protocol.packed_ids import prompt_ids
from tokenwire.protocol.vllm_names import json_object
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.cache.prefix_cache import CacheChange, OnKvEvents
from tokenwire.worker.engine.interface import EngineSequence, Step
from tokenwire.worker.engine.media import EngineMedia
from tokenwire.worker.media.processor_pool import default_processes
from tokenwire.worker.media.settings import MediaMemory
from tokenwire.worker.vllm_engine.admin_methods import VllmAdmin, lora_request
from tokenwire.worker.vllm_engine.arguments import parse_engine_args
from tokenwire.worker.vllm_engine.background import Background
from tokenwire.worker.vllm_engine.capabilities import check_engine_safety, engine_capabilities, engine_configuration
from tokenwire.worker.vllm_engine.child_processes import kill_children, prepare_children
from tokenwire.worker.vllm_engine.core_driver import CoreDriver, missing_internals
from tokenwire.worker.vllm_engine.driver import Driver, VllmRequest
from tokenwire.worker.vllm_engine.errors import vllm_errors
from tokenwire.worker.vllm_engine.generate_driver import GenerateDriver
from tokenwire.worker.vllm_engine.grammars import GrammarCheck
from tokenwire.worker.vllm_engine.kv_events import KvEventSubscriber
from tokenwire.worker.vllm_engine.pooling import describe_pooling, pools, to_vllm_params, to_vllm_requests
from tokenwire.worker.vllm_engine.pooling_driver import PoolingDriver
from tokenwire.worker.vllm_engine.sampling import to_vllm
from tokenwire.worker.vllm_engine.tokenizer import tokenizer_files
from tokenwire.worker.vllm_engine.warm_up import warm_up
from tokenwire.worker.vllm_engine.weights import weights_digest_of

if TYPE_CHECKING:
    from tokenwire.worker.vllm_engine.media import VllmMedia

log = logging.getLogger(__name__)

_TAKES_SESSION_IDS = "session_id" in inspect.signature(AsyncLLM.generate).parameters
"""A session is a hint: vLLM 0.26 has no use for it."""
_SHUTDOWN_S = 30.0
"""Seconds for the engine's processes to exit; vLLM's own bounds, 5 s each, are too short on a busy machine."""
_STOP_START_S = 10.0
"""Seconds that `stop` waits for a cancelled start."""


class VllmEngine(VllmAdmin):
    """One vLLM engine with all of its processes.

    Driven by CoreDriver if this vLLM has the internals for it, else by GenerateDriver; `use_core_driver` forces either.
    """

    def __init__(
        self,
        model: str,
        engine_args: list[str],
        served_model_names: list[str],
        use_core_driver: bool | None = None,
        kv_events: bool = False,
        warm_up: bool = True,
        media: MediaMemory | None = None,
        report: Callable[[str], None] = lambda phase: None,
    ) -> None:
        """`report` is called with each slow phase of the start."""
        super().__init__()
        self.model_root = model
        self._engine_args = engine_args
        self._names = served_model_names
        self._use_core_driver = use_core_driver
        self._warm_up = warm_up
        self._media_memory = media or MediaMemory()
        self._media: VllmMedia | None = None
        self._report = report
        self._driver: Driver | None = None
        self._on_kv_events: OnKvEvents | None = None
        self._kv_event_subscriber = KvEventSubscriber(self._publish_kv_events) if kv_events else None
        self._files: dict[str, bytes] = {}
        self._weights_digest = ""
        self._start_thread: Background[Any] | None = None
        self._stopped = False
        self._traced = self._pools = False
        self._tasks: tuple[str, ...] = ()
        self._grammars: GrammarCheck | None = None
        self._capabilities = pb.EngineCapabilities()
        self._loras: set[int] = set()
        self._submitting: set[EngineSequence] = set()
        self._aborted_on_submit: set[EngineSequence] = set()

    async def start(self) -> None:
        """Load the model. Raises EngineFailed with a message that names a remedy."""
        self._start_thread = Background(self._build, discard=_shut_down)
        llm = await self._start_thread.result()
        self._start_thread = None  # its result would keep the engine in memory
        if self._stopped:
            await Background(lambda: _shut_down(llm)).result()
            raise EngineFailed("The engine was stopped during its start.")
        self._llm = llm
        self._grammars = GrammarCheck(llm.vllm_config, llm.get_tokenizer())
        try:
            self._traced = await self._llm.is_tracing_enabled()
            self._pools = pools(llm.model_config)
            self._media = None if self._pools else _open_media(llm, self._media_memory)
            self._tasks = await self._llm.get_supported_tasks()
            self._capabilities = await engine_capabilities(self._llm)
            digest = asyncio.to_thread(weights_digest_of, llm.vllm_config)
            self._weights_digest, _ = await asyncio.gather(digest, self._start_driver())
            if self._media is not None:
                self._report("loading what processes pictures")
                await self._media.loaded()  # or the first picture would wait for it, up to a minute
            if self._kv_event_subscriber is not None:
                self._kv_event_subscriber.start()
        except BaseException:
            await self.stop()
            raise

    async def _start_driver(self) -> None:
        if self._warm_up and not self._pools:
            log.info("warming up: running one request of each kind")
            self._report("warming up")
            self._driver = self._choose_driver()
            await warm_up(self._llm, self._driver)
        self._driver = self._choose_driver()
        await self._driver.start()

    def _build(self) -> Any:
        """Build the engine in a thread without an event loop: inside one, AsyncLLM would start its output handler."""
        prepare_children(_SHUTDOWN_S)
        parsed = parse_engine_args(self.model_root, self._engine_args)
        if self._kv_event_subscriber is not None:
            self._kv_event_subscriber.configure(parsed)
        served = parsed.served_model_name or []
        self._names = self._names or ([served] if isinstance(served, str) else list(served)) or [self.model_root]
        parsed.served_model_name = self._names  # vLLM labels its metrics with it
        try:
            # The usage context decides defaults such as the batch size: the same as in vLLM's server.
            llm = AsyncLLM.from_engine_args(parsed, usage_context=UsageContext.OPENAI_API_SERVER)
        except Exception as error:
            raise EngineFailed(
                f"vLLM could not start {self.model_root}: {error} (see the log above){self._hub_hint()}"
            ) from error
        try:
            self._files = tokenizer_files(llm.get_tokenizer(), llm.model_config.hf_config.model_type)
        except BaseException:
            _shut_down(llm)
            raise
        return llm

    def _choose_driver(self) -> Driver:
        assert self._grammars is not None
        missing = [] if self._use_core_driver is False else missing_internals(self._llm)
        if self._pools and not missing:
            return PoolingDriver(self._llm, self._grammars, self._weight_label)
        if self._pools:
            raise EngineFailed(f"vLLM {vllm.__version__} lacks {', '.join(missing)}, which pooling needs.")
        if self._use_core_driver is False or (missing and self._use_core_driver is None):
            if missing:
                log.warning("vLLM %s lacks %s: using the slower driver", vllm.__version__, ", ".join(missing))
            return GenerateDriver(self._llm, self._grammars, self._weight_label)
        if missing:
            raise EngineFailed(f"vLLM {vllm.__version__} lacks {', '.join(missing)}, which the core driver needs.")
        return CoreDriver(self._llm, self._grammars, self._weight_label)

    def subscribe_kv_events(self, on_change: OnKvEvents) -> bool:
        """Call `on_change` with every change of the prefix cache, if the engine publishes them."""
        self._on_kv_events = on_change
        return self._kv_event_subscriber is not None

    def _publish_kv_events(self, change: CacheChange) -> None:
        if self._on_kv_events is not None:
            self._on_kv_events(change)

    def _hub_hint(self) -> str:
        return "" if Path(self.model_root).exists() else f". No directory {self.model_root}: it was looked up on a hub."

    def describe(self) -> pb.Model:
        """Describe the started model; the tokenizer digest is left empty."""
        llm = self.llm
        config = llm.model_config
        tasks, pooling = (["generate"], None)
        if self._pools:
            tasks, pooling = describe_pooling(config, self._tasks, llm.get_tokenizer())
        return pb.Model(
            names=self._names,
            root=self.model_root,
            max_model_len=config.max_model_len,
            # vLLM's own bound: tokenizer and model may each have ids that the other lacks.
            max_token_id=max(*llm.get_tokenizer().get_vocab().values(), config.get_vocab_size() - 1),
            default_sampling_params_json=json.dumps(config.get_diff_sampling_param()),
            max_num_seqs=llm.vllm_config.scheduler_config.max_num_seqs,
            engine=f"vllm {vllm.__version__.partition('+')[0]}",
            model_type=config.hf_config.model_type or "",
            architecture=next(iter(config.architectures or ()), ""),
            weights_digest=self._weights_digest,
            dtype=str(config.dtype).removeprefix("torch."),
            quantization=str(config.quantization or "none"),
            tasks=tasks,
            pooling=pooling,
            media=() if self._media is None else self._media.kinds(),
        )

    @property
    def media(self) -> EngineMedia | None:
        """The media of prompts; None if the model takes text only."""
        return self._media

    def capabilities(self) -> pb.EngineCapabilities:
        """Return how the started engine samples."""
        return self._capabilities

    def configuration(self) -> dict[str, Any]:
        """Return the configuration that clients may read, with vLLM's names."""
        return engine_configuration(self.llm.vllm_config)

    def metrics(self) -> list[Metric]:
        """Return the metrics of vLLM's own loggers; none with --disable-log-stats."""
        own = [] if self._media is None else self._media.metrics()
        return [*(family for family in get_prometheus_registry().collect() if family.name.startswith("vllm:")), *own]

    def tokenizer_files(self) -> dict[str, bytes]:
        """Return the files from which a coordinator rebuilds this engine's tokenizer and chat template exactly."""
        return self._files

    async def submit(self, submit: pb.Submit, sequences: list[EngineSequence]) -> None:
        """Start one request's sequences (one per slot of the submit)."""
        driver = self._started()
        async with self._submission(driver, submit, sequences):
            with vllm_errors():
                vllm_request = self._vllm_request(submit, len(sequences), await self._prompt(submit))
            await driver.submit(vllm_request, sequences)

    async def pool(self, pool: pb.Pool, sequences: list[EngineSequence]) -> None:
        """Start inputs (one per slot of the command)."""
        driver = self._started()
        if not isinstance(driver, PoolingDriver):
            raise InvalidRequest("This model does not support pooling")
        async with self._submission(driver, pool, sequences):
            with vllm_errors():
                params = to_vllm_params(pool.params, self.llm.model_config)
                inputs = self._shared_inputs(pool)
            await driver.pool(to_vllm_requests(pool, params, inputs), pool.params.dtype, sequences)

    @asynccontextmanager
    async def _submission(
        self, driver: Driver, request: pb.Submit | pb.Pool, sequences: list[EngineSequence]
    ) -> AsyncIterator[None]:
        """Load what a request needs before the block submits it; afterwards abort what was aborted meanwhile."""
        self._submitting.update(sequences)
        try:
            if request.HasField("lora"):
                await self._ensure_lora(request.lora)
            yield
        finally:
            self._submitting.difference_update(sequences)
            early = [sequence for sequence in sequences if sequence in self._aborted_on_submit]
            self._aborted_on_submit.difference_update(early)
        if early:
            await driver.abort(early)

    async def _ensure_lora(self, adapter: pb.LoraAdapter) -> None:
        """Load an adapter before the first request that needs it: a broken one would fail the engine inside a step."""
        if adapter.id not in self._loras:
            try:
                await self.load_lora(adapter)
            except EngineFailed as error:
                message = f"LoRA adapter {adapter.name!r} cannot be loaded: {error}"
                raise InvalidRequest(message, param="model") from error
            self._loras.add(adapter.id)

    async def _prompt(self, submit: pb.Submit) -> Any:
        """Return vLLM's input: the ids of the prompt, with what its media are made to."""
        salt = submit.cache_salt if submit.HasField("cache_salt") else None
        token_ids = list(prompt_ids(submit))
        if not submit.media:
            return tokens_input(token_ids, cache_salt=salt)
        if self._media is None:
            raise InvalidRequest("This model takes text only.", param="messages")
        prompt = await self._media.prompt(token_ids, submit.media, submit.media_end, submit.tenant)
        return prompt if salt is None else {**prompt, "cache_salt": salt}

    def _vllm_request(self, submit: pb.Submit, n: int, prompt: Any) -> VllmRequest:
        def given(name: str) -> Any:
            return getattr(submit, name) if submit.HasField(name) else None

        reasoning: dict[str, Any] = {}
        if submit.HasField("reasoning_ended"):
            reasoning["reasoning_ended"] = submit.reasoning_ended
        if submit.HasField("reasoning_parser_kwargs_json"):
            kwargs = json_object(submit.reasoning_parser_kwargs_json, "reasoning_parser_kwargs")
            reasoning["reasoning_parser_kwargs"] = kwargs
        params = to_vllm(submit.sampling_params, n)
        check_engine_safety(params, self._capabilities, self.llm.vllm_config)
        inputs = {**self._shared_inputs(submit), "data_parallel_rank": given("data_parallel_rank")}
        if _TAKES_SESSION_IDS:
            inputs["session_id"] = given("session_id")
        return VllmRequest(
            request_id=submit.request_id,
            prompt=prompt,
            params=params,
            inputs=inputs,
            reasoning=reasoning,
            tenant=submit.tenant,
        )

    def _shared_inputs(self, request: pb.Submit | pb.Pool) -> dict[str, Any]:
        return {
            "lora_request": lora_request(request.lora) if request.HasField("lora") else None,
            "priority": request.priority,
            "trace_headers": dict(request.trace_headers) if self._traced and request.trace_headers else None,
        }

    async def abort(self, sequences: list[EngineSequence]) -> None:
        """Abort sequences; their ABORT finish comes in a later step. Unknown ones are ignored."""
        self._aborted_on_submit.update(self._submitting.intersection(sequences))
        if self._driver is not None:
            await self._driver.abort([sequence for sequence in sequences if sequence not in self._submitting])

    def steps(self) -> AsyncIterator[Step]:
        """Yield steps until `stop`, or until the engine dies."""
        return self._started().steps()

    async def load_weights(self, path: str) -> None:
        """Replace the weights with those of a directory; "" restores the initial ones."""
        # The engine drops its adapters with the old weights; they are loaded again when a request needs them.
        self._loras.clear()
        await super().load_weights(path)

    async def unload_lora(self, adapter_id: int) -> bool:
        """Unload an adapter; return whether it was loaded."""
        self._loras.discard(adapter_id)
        return await super().unload_lora(adapter_id)

    async def stop(self) -> None:
        """Stop the engine and free its memory. Safe to call twice, and before `start`."""
        self._stopped = True
        driver, llm = self._driver, self._llm
        self._driver = self._llm = None
        if self._kv_event_subscriber is not None:
            await self._kv_event_subscriber.stop()
        if driver is not None:
            await driver.stop()
        if self._grammars is not None:
            await self._grammars.close()
        if self._media is not None:
            await self._media.stop()
        if llm is not None:
            await Background(lambda: _shut_down(llm)).result()
        elif self._start_thread is not None:
            await _cancel_start(self._start_thread)

    def _started(self) -> Driver:
        if self._driver is None:
            raise Unavailable("The engine is not running.")
        return self._driver


def _open_media(llm: Any, memory: MediaMemory) -> "VllmMedia | None":
    """Return what processes pictures for a model that takes them, started."""
    if not llm.model_config.is_multimodal_model:
        return None
    try:
        from tokenwire.worker.vllm_engine.media import VllmMedia, takes_pictures
    except ImportError as error:
        log.warning("this vLLM lacks what pictures need (%s): the worker takes text only", error)
        return None
    if not takes_pictures(llm):
        return None
    media = VllmMedia(llm, memory.memory_bytes, memory.processes or default_processes(), memory.max_pixels)
    media.start()
    return media


def _shut_down(llm: Any) -> None:
    """Shut down the engine's processes, with enough time to exit by themselves."""
    llm.shutdown(timeout=_SHUTDOWN_S)


async def _cancel_start(building: Background[Any]) -> None:
    """Cancel a start in progress: processes that load a model react only to SIGKILL, and would outlive the worker."""
    deadline = time.monotonic() + _STOP_START_S
    while building.is_running and time.monotonic() < deadline:
        kill_children()
        await asyncio.sleep(0.1)
