"""Clients may read some of vLLM's configuration, and nothing else."""

from pathlib import Path
from types import SimpleNamespace

from tokenwire.worker.vllm_engine.configuration import engine_configuration


def test_only_listed_fields_are_shown_and_as_json_values() -> None:
    """Whatever else the configuration holds may be secret; what this vLLM does not have is None."""
    config = SimpleNamespace(
        model_config=SimpleNamespace(model=Path("/models/one"), dtype="float32", max_model_len=2048, hf_token="secret"),
        parallel_config=SimpleNamespace(world_size=2, data_parallel_size=1),
        lora_config=None,
        device_config=SimpleNamespace(device_type="cpu"),
        weight_transfer_config=SimpleNamespace(backend="nccl", key="secret"),
    )

    shown = engine_configuration(config)

    assert "secret" not in str(shown)
    assert shown["model_config"]["model"] == "/models/one"
    assert (shown["model_config"]["dtype"], shown["model_config"]["max_model_len"]) == ("float32", 2048)
    assert shown["model_config"]["max_logprobs"] is None
    assert (shown["parallel_config"]["world_size"], shown["lora_config"]) == (2, None)
    assert shown["weight_transfer_config"] == {"backend": "nccl"}
