"""A simulated engine's metrics have vLLM's names and labels."""

from tests.worker.simulated_engine.simulation import simulation
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.simulated_engine.metrics import families

LABELS = {"model_name": "simulated", "engine": "0"}


def test_load_and_tokens_have_vllms_names() -> None:
    """Gauges of the load, and counters of prompt and generated tokens, each labelled with model and engine."""
    load = pb.Load(running=3, waiting=2, kv_cache_usage=0.25)
    samples = [sample for family in families("simulated", load, 40, 50) for sample in family.samples]

    assert {sample.name: sample.value for sample in samples} == {
        "vllm:num_requests_running": 3,
        "vllm:num_requests_waiting": 2,
        "vllm:kv_cache_usage_perc": 0.25,
        "vllm:prompt_tokens_total": 40,
        "vllm:generation_tokens_total": 50,
    }
    assert [sample.labels for sample in samples] == [LABELS] * 5


async def test_an_engine_counts_prompts_for_each_of_their_sequences() -> None:
    """A prompt that two sequences continue counts twice, as in vLLM."""
    async with simulation() as sim:
        await sim.submit([65] * 10, n=2, max_tokens=4)
        await sim.finish()
        values = {sample.name: sample.value for family in sim.engine.metrics() for sample in family.samples}

    assert (values["vllm:prompt_tokens_total"], values["vllm:generation_tokens_total"]) == (20, 8)
