"""Settings of simulated engines that are out of range, or do not fit the model."""

from pathlib import Path

import pytest

from tokenwire.errors import EngineFailed, InvalidRequest
from tokenwire.worker.simulated_engine.engine import SimulatedEngine, SimulationSettings


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"max_model_len": 1}, "--sim-max-model-len"),
        ({"step_ms": -1.0}, "--sim-step-ms"),
        ({"prefill_tokens_per_s": float("inf")}, "--sim-prefill-rate"),
        ({"max_num_seqs": 0}, "--sim-max-num-seqs"),
        ({"max_queue": -1}, "--sim-max-queue"),
        ({"kv_tokens": 16}, "--sim-kv-tokens"),
        ({"script": ()}, "--sim-script"),
        ({"eos_rate": 1.5}, "--sim-eos-rate"),
        ({"served_model_names": ("",)}, "--served-model-name"),
    ],
)
def test_settings_are_validated(fields: dict[str, object], name: str) -> None:
    """The error names the option that is out of range."""
    with pytest.raises(InvalidRequest, match=f"^{name} must "):
        SimulationSettings(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (SimulationSettings(max_model_len=64, kv_tokens=63), "raise kv_tokens or lower max_model_len"),
        (SimulationSettings(script=(259,)), "the vocabulary ends at 258"),
        (SimulationSettings(model_dir=Path("/nowhere")), "has no tokenizer.json"),
    ],
)
async def test_settings_that_do_not_fit_the_model_fail_the_start(config: SimulationSettings, message: str) -> None:
    """The error gives a remedy."""
    with pytest.raises(EngineFailed, match=message):
        await SimulatedEngine(config).start()
