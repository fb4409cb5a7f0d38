"""Admin operations reach AsyncLLM's methods, or name the argument that the engine lacks."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.lazily import Lazily
from tokenwire.errors import InvalidRequest, NotFound, Unavailable, Unsupported
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import PauseMode

admin_methods = Lazily("tokenwire.worker.vllm_engine.admin_methods")
exceptions = Lazily("vllm.exceptions")

pytestmark = pytest.mark.engine

POET = pb.LoraAdapter(name="poet", id=4, path="/poet")


class RecordingLlm:
    """Stands for AsyncLLM: records calls and their arguments, and may fail."""

    def __init__(self, **config: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.error: Exception | None = None
        self.is_now_paused = False
        self.model_config = SimpleNamespace(enable_sleep_mode=False, is_multimodal_model=False)
        self.vllm_config = SimpleNamespace(**{"lora_config": None, "weight_transfer_config": None, **config})

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **more: Any) -> Any:
            if self.error is not None:
                raise self.error
            self.calls.append((name, *arguments, *more.values()))
            if name == "is_paused":
                return self.is_now_paused
            return [9, 4] if name == "list_loras" else [True]

        return call


def admin(llm: RecordingLlm) -> Any:
    """Return the operations of an engine that has started."""
    made = admin_methods.VllmAdmin()
    made._llm, made.model_root = llm, "/initial"
    return made


async def test_an_engine_that_has_not_started_is_unavailable() -> None:
    """There is nothing to pause."""
    with pytest.raises(Unavailable):
        await admin_methods.VllmAdmin().pause(PauseMode.KEEP, clear_cache=True)


async def test_operations_are_vllms() -> None:
    """With vLLM's values, and the initial weights where no directory is named."""
    llm = RecordingLlm(lora_config=object())
    engine = admin(llm)

    await engine.pause(PauseMode.WAIT, clear_cache=True)
    await engine.sleep(0, PauseMode.ABORT)
    await engine.wake_up([])
    await engine.wake_up(["weights"])
    await engine.load_weights("")
    await engine.load_weights("/step_1")

    assert llm.calls == [
        ("pause_generation", "wait", True),
        ("sleep", 0, "abort"),
        ("wake_up", None),
        ("wake_up", ["weights"]),
        ("collective_rpc", "reload_weights", None, (), {"weights_path": "/initial"}),
        ("collective_rpc", "reload_weights", None, (), {"weights_path": "/step_1"}),
    ]
    assert await engine.list_loras() == [4, 9]
    assert await engine.collective_rpc("count", 5.0, [1], {}) == [True]


@pytest.mark.parametrize("is_paused", [False, True])
async def test_what_was_made_of_pictures_is_forgotten_with_the_weights(is_paused: bool) -> None:
    """By vLLM's scheduler too, while the engine makes no step; who paused it finds it paused."""
    llm = RecordingLlm()
    llm.is_now_paused, llm.model_config.is_multimodal_model = is_paused, True
    engine = admin(llm)

    async def called(operation: Any) -> list[str]:
        llm.calls.clear()
        await operation
        return [name for name, *_ in llm.calls if name != "is_paused"]

    def held(*calls: str) -> list[str]:
        return [*calls] if is_paused else ["pause_generation", *calls, "resume_generation"]

    reloaded = held("collective_rpc", "reset_encoder_cache")
    assert await called(engine.load_weights("/step_1")) == reloaded
    assert await called(engine.collective_rpc("reload_weights", None, [], {})) == reloaded
    assert await called(engine.collective_rpc("count", None, [], {})) == ["collective_rpc"]
    assert await called(engine.reset_cache(True, False)) == [*held("reset_encoder_cache"), "reset_prefix_cache"]
    llm.vllm_config.weight_transfer_config = object()
    assert (await called(engine.update_weights("finish", {})))[: 1 if is_paused else 3] == held("reset_encoder_cache")


async def test_a_missing_feature_names_its_argument() -> None:
    """Without a call to the engine; pausing alone needs nothing."""
    llm = RecordingLlm()
    engine = admin(llm)

    for call, argument in (
        (engine.sleep(1, PauseMode.KEEP), "--enable-sleep-mode"),
        (engine.load_lora(POET), "--enable-lora"),
        (engine.unload_lora(4), "--enable-lora"),
        (engine.update_weights("start", {}), "--weight-transfer-config"),
    ):
        with pytest.raises(Unsupported, match=argument):
            await call
    assert await engine.list_loras() == []
    assert llm.calls == []


async def test_an_adapter_that_cannot_be_found_is_not_found() -> None:
    """The engine's process reports its errors as text; others stay what they are."""
    llm = RecordingLlm(lora_config=object())
    missing = exceptions.LoRAAdapterNotFoundError("poet", "/poet")
    llm.error = RuntimeError(f"Call to add_lora method failed: {missing}")
    with pytest.raises(NotFound) as refused:
        await admin(llm).load_lora(POET)
    assert (refused.value.message, refused.value.param) == (str(missing), "lora_path")

    llm.error = ValueError("rank 128 is too high")
    with pytest.raises(InvalidRequest, match="rank 128"):
        await admin(llm).load_lora(POET)


async def test_stages_of_a_weight_transfer_are_vllms() -> None:
    """Each calls its method with what it needs; an unknown one and a missing argument are named."""
    llm = RecordingLlm(weight_transfer_config=object())
    engine = admin(llm)
    for stage, arguments in (
        ("init", {"init_info": {"a": 1}}),
        ("start", {}),
        ("start_draft", {}),
        ("update", {"update_info": {"b": 2}}),
        ("finish", {"weight_version": "7"}),
        ("shutdown", {}),
    ):
        await engine.update_weights(stage, arguments)

    assert [name for name, *_ in llm.calls] == [
        "init_weight_transfer_engine",
        "start_weight_update",
        "start_draft_weight_update",
        "update_weights",
        "finish_weight_update",
        "shutdown_weight_transfer_engine",
    ]
    assert (llm.calls[0][1].init_info, llm.calls[3][1].update_info, llm.calls[4][1]) == ({"a": 1}, {"b": 2}, "7")
    with pytest.raises(InvalidRequest, match="needs update_info"):
        await engine.update_weights("update", {})
    with pytest.raises(InvalidRequest, match="'polish'"):
        await engine.update_weights("polish", {})


async def test_parameters_sent_one_by_one_need_no_configuration() -> None:
    """The worker's own extension receives them."""
    llm = RecordingLlm()
    await admin(llm).update_weights(
        "update", {"update_info": {"named_param": {"name": "a", "dtype": "float32", "shape": [1]}}}
    )

    assert llm.calls == [("collective_rpc", "tokenwire_update_named_param", None, ("a", "float32", [1]))]
