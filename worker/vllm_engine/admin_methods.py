"""The engine's admin operations, implemented with AsyncLLM's public methods."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import vllm
from vllm.distributed.weight_transfer.base import WeightTransferInitRequest, WeightTransferUpdateRequest
from vllm.exceptions import LoRAAdapterNotFoundError
from vllm.lora.request import LoRARequest

from tokenwire.errors import InvalidRequest, NotFound, Unavailable, Unsupported
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import READ_WEIGHTS, PauseMode
from tokenwire.worker.vllm_engine.errors import vllm_errors
from tokenwire.worker.vllm_engine.named_params import extension_call
from tokenwire.worker.vllm_engine.weight_label import WeightLabel


class VllmAdmin:
    """Admin operations of an engine, which sets `_llm` when it has started."""

    model_root = ""
    """Directory or hub name of the initial weights."""

    def __init__(self) -> None:
        self._llm: Any = None
        self._weight_label = WeightLabel()

    @property
    def llm(self) -> Any:
        """The started AsyncLLM. Raises Unavailable before the start and after the stop."""
        if self._llm is None:
            raise Unavailable("The engine is not running.")
        return self._llm

    async def pause(self, mode: PauseMode, clear_cache: bool) -> None:
        """Pause generation."""
        with vllm_errors():
            await self.llm.pause_generation(mode=mode.value, clear_cache=clear_cache)

    async def resume(self) -> None:
        """Resume generation."""
        with vllm_errors():
            await self.llm.resume_generation()

    async def is_paused(self) -> bool:
        """Return whether generation is paused."""
        with vllm_errors():
            return bool(await self.llm.is_paused())

    async def sleep(self, level: int, mode: PauseMode) -> None:
        """Free memory: level 0 only pauses, 1 offloads weights, 2 drops them."""
        if level > 0 and not self.llm.model_config.enable_sleep_mode:
            raise Unsupported("This worker cannot sleep: start it with --enable-sleep-mode after `--`.")
        with vllm_errors():
            await self.llm.sleep(level=level, mode=mode.value)

    async def wake_up(self, tags: list[str]) -> None:
        """Undo `sleep`, whole or by tags."""
        with vllm_errors():
            await self.llm.wake_up(tags or None)

    async def is_sleeping(self) -> bool:
        """Return whether the engine sleeps."""
        with vllm_errors():
            return bool(await self.llm.is_sleeping())

    @asynccontextmanager
    async def _without_pictures(self) -> AsyncIterator[None]:
        """Hold the engine, and let it forget what its encoder made of pictures: other weights make something else.

        vLLM's executors forget it as they reload, its scheduler does not: the next request with such a picture would
        end the engine. So would a step that is under way, therefore there is none.
        """
        llm = self.llm
        if not llm.model_config.is_multimodal_model:
            yield
            return
        runs = not await llm.is_paused()
        if runs:
            await llm.pause_generation(mode=PauseMode.KEEP.value, clear_cache=False)
        try:
            yield
        finally:
            await llm.reset_encoder_cache()
            if runs:
                await llm.resume_generation()

    async def reset_cache(self, reset_running_requests: bool, reset_external: bool) -> bool:
        """Clear the prefix cache, and the encoder's; return whether the former is empty now."""
        with vllm_errors():
            async with self._without_pictures():
                pass
            return bool(await self.llm.reset_prefix_cache(reset_running_requests, reset_external))

    async def load_lora(self, adapter: pb.LoraAdapter) -> bool:
        """Load an adapter; return whether it is loaded now."""
        self._require_lora()
        with vllm_errors():
            try:
                return bool(await self.llm.add_lora(lora_request(adapter)))
            except Exception as error:
                # The engine's process reports its errors as text.
                missing = str(LoRAAdapterNotFoundError(adapter.name, adapter.path))
                if missing in str(error):
                    raise NotFound(missing, param="lora_path") from error
                raise

    async def unload_lora(self, adapter_id: int) -> bool:
        """Unload an adapter; return whether it was loaded."""
        self._require_lora()
        with vllm_errors():
            return bool(await self.llm.remove_lora(adapter_id))

    async def list_loras(self) -> list[int]:
        """Return the ids of loaded adapters."""
        if self.llm.vllm_config.lora_config is None:
            return []
        with vllm_errors():
            return sorted(await self.llm.list_loras())

    def _require_lora(self) -> None:
        if self.llm.vllm_config.lora_config is None:
            raise Unsupported("This worker does not accept LoRA adapters: start it with --enable-lora after `--`.")

    async def load_weights(self, path: str) -> None:
        """Replace the weights with those of a directory; "" restores the initial ones."""
        arguments = {"weights_path": path or self.model_root}
        with vllm_errors():
            async with self._without_pictures():
                await self.llm.collective_rpc("reload_weights", None, (), arguments)

    async def update_weights(self, stage: str, arguments: dict[str, Any]) -> None:
        """Run one stage of a weight update: init, start, start_draft, update, finish or shutdown."""
        llm = self.llm
        called = extension_call(stage, arguments)
        if called is None and llm.vllm_config.weight_transfer_config is None:
            raise Unsupported(
                "This worker does not accept weight transfers: start it with "
                """--weight-transfer-config '{"backend": "nccl"}' after `--`."""
            )
        with vllm_errors():
            if called is not None:
                await llm.collective_rpc(called[0], None, called[1])
                return
            match stage:
                case "init":
                    info = _argument(arguments, "init_info")
                    await llm.init_weight_transfer_engine(WeightTransferInitRequest(init_info=info))
                case "start":
                    await llm.start_weight_update()
                case "start_draft":
                    await llm.start_draft_weight_update()
                case "update":
                    info = _argument(arguments, "update_info")
                    await llm.update_weights(WeightTransferUpdateRequest(update_info=info))
                case "finish":
                    async with self._without_pictures():
                        pass
                    await self._weight_label.finish_update(llm, arguments.get("weight_version"))
                case "shutdown":
                    if not hasattr(llm, "shutdown_weight_transfer_engine"):
                        raise Unsupported(f"vLLM {vllm.__version__} cannot shut down a weight transfer.")
                    await llm.shutdown_weight_transfer_engine()
                case _:
                    raise InvalidRequest(f"Unknown weight update stage {stage!r}.", param="stage")

    async def get_weight_version(self) -> str:
        """Return the label of the current weights."""
        with vllm_errors():
            return await self._weight_label.read(self.llm)

    async def set_weight_version(self, version: str) -> None:
        """Label the current weights; later steps carry the label."""
        with vllm_errors():
            await self._weight_label.set(self.llm, version)

    async def collective_rpc(
        self, method: str, timeout_s: float | None, args: list[Any], kwargs: dict[str, Any]
    ) -> list[Any]:
        """Call a method on every process of the engine; return their results."""
        with vllm_errors():
            async with self._without_pictures() if method in READ_WEIGHTS else nullcontext():
                return list(await self.llm.collective_rpc(method, timeout_s, tuple(args), kwargs))


def lora_request(adapter: pb.LoraAdapter) -> Any:
    """Build vLLM's LoRARequest. Raises InvalidRequest for ids or names that vLLM refuses."""
    with vllm_errors():
        return LoRARequest(
            lora_name=adapter.name,
            lora_int_id=adapter.id,
            lora_path=adapter.path,
            is_3d_lora_weight=adapter.is_3d_lora_weight,
        )


def _argument(arguments: dict[str, Any], name: str) -> Any:
    if name not in arguments:
        raise InvalidRequest(f"This stage of a weight update needs {name}.", param=name)
    return arguments[name]
