"""What an engine can do is read off its configuration, and requests that may kill it are refused."""

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lazily import Lazily
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.vllm_engine.extension import WORKER_EXTENSION
from tokenwire.worker.vllm_engine.vllm_version import installed_vllm

capabilities = Lazily("tokenwire.worker.vllm_engine.capabilities")
sampling = Lazily("tokenwire.worker.vllm_engine.sampling")
torch = Lazily("torch")

pytestmark = pytest.mark.engine


class ConfiguredLlm:
    """Stands for AsyncLLM: a configuration, and processes that keep generators or not."""

    def __init__(self, device: str = "cpu", keeps_generators: bool = True, **changed: Any) -> None:
        self._keeps_generators = keeps_generators
        usual: dict[str, Any] = {
            "device_config": SimpleNamespace(device_type=device),
            "model_config": SimpleNamespace(
                dtype=torch.float32, get_vocab_size=lambda: 100, enable_sleep_mode=True, runner_type="generate"
            ),
            "scheduler_config": SimpleNamespace(enable_chunked_prefill=True),
            "parallel_config": SimpleNamespace(worker_extension_cls=WORKER_EXTENSION),
            "speculative_config": None,
            "lora_config": None,
            "use_v2_model_runner": False,
            "cache_config": SimpleNamespace(enable_prefix_caching=True, block_size=16),
            "kv_transfer_config": None,
            "weight_transfer_config": None,
            "structured_outputs_config": None,
        }
        self.vllm_config = SimpleNamespace(**{**usual, **changed})

    async def collective_rpc(self, method: str) -> list[bool] | list[str]:
        """Return the processes' answers."""
        if method == "tokenwire_seeded_draw":
            return ["cpu 5", "cpu 5"]
        assert method == "tokenwire_keep_generators"
        return [True, self._keeps_generators]

    def get_tokenizer(self) -> None:
        """Return none: no grammar can be checked."""


async def test_seeds_are_safe_where_every_process_keeps_generators() -> None:
    """On CPUs a chunked prompt with a seed may kill vLLM; without chunks, or on a GPU, there is no danger."""
    plain = SimpleNamespace(enable_chunked_prefill=False)
    another = SimpleNamespace(worker_extension_cls="builtins.object")
    cases = [
        (ConfiguredLlm(), True),
        (ConfiguredLlm(keeps_generators=False), False),
        (ConfiguredLlm(parallel_config=another), False),
        (ConfiguredLlm(parallel_config=another, scheduler_config=plain), True),
        (ConfiguredLlm("cuda", parallel_config=another), True),
    ]
    assert [(await capabilities.engine_capabilities(llm)).seeds for llm, _ in cases] == [safe for _, safe in cases]


async def test_noise_and_batches_depend_on_the_runner_and_the_type() -> None:
    """Noise is positional in the new runner without drafts; batches do not matter on CPUs in full precision."""
    drafting = ConfiguredLlm("cuda", use_v2_model_runner=True, speculative_config=object())
    generating = SimpleNamespace(dtype=torch.float16, enable_sleep_mode=True, runner_type="generate")
    half = ConfiguredLlm(model_config=generating)
    found = [
        await capabilities.engine_capabilities(llm)
        for llm in (ConfiguredLlm(), ConfiguredLlm("cuda", use_v2_model_runner=True), drafting, half)
    ]
    assert [each.positional_seeds for each in found] == [False, True, False, False]
    assert [each.batch_invariant for each in found] == [True, False, False, False]


async def test_the_noise_of_seeds_has_a_name() -> None:
    """That of what a seed draws in all processes, or of vLLM where it draws by position."""
    positional = await capabilities.engine_capabilities(ConfiguredLlm("cuda", use_v2_model_runner=True))
    another = SimpleNamespace(worker_extension_cls="builtins.object")
    unknown = await capabilities.engine_capabilities(ConfiguredLlm("cuda", parallel_config=another))

    assert (await capabilities.engine_capabilities(ConfiguredLlm())).seeded_noise == "cpu 5"
    assert positional.seeded_noise == "positional, vllm " + ".".join(installed_vllm().split(".")[:2])
    assert unknown.seeded_noise == ""


@pytest.mark.parametrize(
    ("cache", "shards", "tokens"),
    [
        ({"block_size": 128}, 1, 128),
        ({"block_size": 16}, 4, 64),
        ({"block_size": 528, "mamba_block_size": 1056}, 1, 1056),
        ({"block_size": 16, "mamba_block_size": None}, 1, 16),
        ({"block_size": 16, "enable_prefix_caching": False}, 1, 0),
    ],
)
async def test_the_blocks_of_the_cache_are_announced(cache: dict[str, Any], shards: int, tokens: int) -> None:
    """As all layers together have them, on all processes that share a sequence."""
    parallel = SimpleNamespace(worker_extension_cls=WORKER_EXTENSION, decode_context_parallel_size=shards)
    config = SimpleNamespace(**{"enable_prefix_caching": True, **cache})
    llm = ConfiguredLlm(cache_config=config, parallel_config=parallel)

    assert (await capabilities.engine_capabilities(llm)).cache_block_tokens == tokens


async def test_batch_invariance_is_requested_by_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of vLLM, which reads it in the engine's processes too; 0.26 does not keep what it promises."""
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    found = await capabilities.engine_capabilities(ConfiguredLlm("cuda"))
    assert found.batch_invariant is (not installed_vllm().startswith("0.26."))


@pytest.mark.parametrize(
    ("device", "dtype", "requested", "version", "expected"),
    [
        ("cuda", "bfloat16", True, (0, 32, 0), True),
        ("cuda", "bfloat16", True, (0, 27, 0, "rc1"), True),
        ("cuda", "bfloat16", True, (0, 26, 1), False),
        ("cuda", "float32", False, (0, 32, 0), False),
        ("cpu", "float32", False, (0, 26, 0), True),
        ("cpu", "bfloat16", True, (0, 32, 0), False),
    ],
)
def test_batch_invariance_is_announced_only_where_it_holds(
    device: str, dtype: str, requested: bool, version: tuple[int | str, ...], expected: bool
) -> None:
    """On GPUs since vLLM 0.27, if requested; on CPUs by the type alone, where the variable changes no product."""
    config = ConfiguredLlm(device, model_config=SimpleNamespace(dtype=getattr(torch, dtype))).vllm_config
    assert capabilities.is_batch_invariant(config, requested, version) is expected


@pytest.mark.parametrize(
    ("params", "able", "config", "param"),
    [
        ({"seed": 5, "temperature": 1.0}, False, {}, "seed"),
        ({"seed": 5, "temperature": 0.0}, False, {}, None),
        ({"seed": 5, "temperature": 1.0}, True, {}, None),
        ({"prompt_logprobs": 1}, True, {"lora_config": True}, "prompt_logprobs"),
        ({"prompt_logprobs": 1}, True, {}, None),
        ({"prompt_logprobs": 1}, True, {"lora_config": True, "device": "cuda"}, None),
        ({"logprobs": 1}, True, {"lora_config": True}, None),
    ],
)
def test_only_what_may_kill_the_engine_is_refused(
    params: dict[str, Any], able: bool, config: dict[str, Any], param: str | None
) -> None:
    """Seeds where they are not safe, and scores of prompts with adapters on CPUs; the error names the field."""
    vllms, llm = sampling.to_vllm(pb.SamplingParams(**params), 1), ConfiguredLlm(**config)
    refused = pytest.raises(InvalidRequest) if param else contextlib.nullcontext()

    with refused as error:
        capabilities.check_engine_safety(vllms, pb.EngineCapabilities(seeds=able), llm.vllm_config)

    assert param is None or (error is not None and error.value.param == param)


def test_only_listed_fields_are_shown_and_as_json_values() -> None:
    """Whatever else the configuration holds may be secret; what this vLLM does not have is None."""
    config = SimpleNamespace(
        model_config=SimpleNamespace(model=Path("/models/one"), dtype="float32", max_model_len=2048, hf_token="secret"),
        parallel_config=SimpleNamespace(world_size=2, data_parallel_size=1),
        lora_config=None,
        device_config=SimpleNamespace(device_type="cpu"),
        weight_transfer_config=SimpleNamespace(backend="nccl", key="secret"),
    )

    shown = capabilities.engine_configuration(config)

    assert "secret" not in str(shown)
    assert shown["model_config"]["model"] == "/models/one"
    assert (shown["model_config"]["dtype"], shown["model_config"]["max_model_len"]) == ("float32", 2048)
    assert shown["model_config"]["max_logprobs"] is None
    assert (shown["parallel_config"]["world_size"], shown["lora_config"]) == (2, None)
    assert shown["weight_transfer_config"] == {"backend": "nccl"}


def test_a_stop_token_beyond_the_vocabulary_is_refused() -> None:
    """Not every vLLM checks them, and they index a tensor of the whole batch."""
    config = ConfiguredLlm("cuda").vllm_config
    allowed = sampling.to_vllm(pb.SamplingParams(stop_token_ids=[0, 99]), 1)
    capabilities.check_engine_safety(allowed, pb.EngineCapabilities(seeds=True), config)
    with pytest.raises(InvalidRequest, match="out-of-vocab") as refused:
        capabilities.check_engine_safety(
            sampling.to_vllm(pb.SamplingParams(stop_token_ids=[5, 100]), 1), pb.EngineCapabilities(seeds=True), config
        )
    assert refused.value.param == "stop_token_ids"
