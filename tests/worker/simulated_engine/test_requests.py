"""Requests to a simulated engine become sequences by their parameters, or are refused as by vLLM."""

import pytest

from tests.worker.simulated_engine.simulation import EOS, PROMPT, simulation
from tokenwire.errors import InvalidRequest
from tokenwire.worker.simulated_engine.engine import SimulationSettings


async def test_seeds_change_the_tokens() -> None:
    """The engine's seed and the request's seed change the tokens; greedy sampling ignores the request's."""
    async with simulation() as one, simulation(SimulationSettings(step_ms=0, seed=1)) as other:
        plain = (await one.run()).ids
        assert (await other.run()).ids != plain
        assert (await one.run(seed=5)).ids != plain
        assert (await one.run(seed=5)).ids == (await one.run(seed=5)).ids
        assert (await one.run(seed=5, temperature=0.0)).ids == (await one.run(seed=6, temperature=0.0)).ids


async def test_sequences_of_one_request_count_their_seeds_up() -> None:
    """Sequence i of a request samples with seed + i."""
    async with simulation() as sim:
        sequences = await sim.submit(n=3, seed=7)
        await sim.finish()
        for index, sequence in enumerate(sequences):
            assert sim.results[sequence].ids == (await sim.run(seed=7 + index)).ids


async def test_a_script_continues_after_a_prompt() -> None:
    """A prompt that ends with the script's beginning, as for a reply that was cut, is continued from there."""
    async with simulation(SimulationSettings(step_ms=0, script=(72, 72, 105, EOS))) as sim:
        for prompt, expected in (([9, 72, 72], [105, EOS]), ([72], [72, 105, EOS]), ([105], [72, 72, 105, EOS])):
            assert (await sim.run(prompt=prompt, max_tokens=7)).ids == expected
        again = await sim.run(prompt=[72, 72, 105, EOS], max_tokens=7)
    assert again.ids == [72, 72, 105, EOS]


async def test_id_constraints_are_obeyed() -> None:
    """Allowed ids, biases of 100 and -100 and traced ids determine the tokens."""
    async with simulation() as sim:
        assert set((await sim.run(max_tokens=100, allowed_token_ids=[65, 66])).ids) == {65, 66}
        assert set((await sim.run(max_tokens=100, logit_bias={67: 100.0, 3: 5.0})).ids) == {67}
        assert 65 not in (await sim.run(max_tokens=1000, logit_bias={65: -100.0})).ids
        assert (await sim.run(max_tokens=4, trace_decode_token_ids=[9, 8])).ids == [9, 8, 9, 8]


@pytest.mark.parametrize(
    ("prompt", "n", "fields", "param"),
    [
        ([], 1, {}, "prompt_token_ids"),
        ([65] * 100, 1, {}, "prompt_token_ids"),
        ([65] * 101, 1, {}, "prompt_token_ids"),
        ([259], 1, {}, "prompt_token_ids"),
        (PROMPT, 2, {"temperature": 0.0}, "n"),
        (PROMPT, 1, {"max_tokens": 0}, "max_tokens"),
        (PROMPT, 1, {"max_tokens": 4, "min_tokens": 5}, "min_tokens"),
        (PROMPT, 1, {"max_tokens": None, "min_tokens": 61}, "min_tokens"),
        (PROMPT, 1, {"stop_token_ids": [259]}, "stop_token_ids"),
        (PROMPT, 1, {"logit_bias": {259: 1.0}}, "logit_bias"),
        (PROMPT, 1, {"logprobs": 21}, "logprobs"),
        (PROMPT, 1, {"logprobs": -2}, "logprobs"),
        (PROMPT, 1, {"allowed_token_ids": [65], "logit_bias": {65: -100.0}}, None),
    ],
)
async def test_an_invalid_request_is_refused(
    prompt: list[int], n: int, fields: dict[str, object], param: str | None
) -> None:
    """The error names the invalid field, and no sequence is started."""
    async with simulation(SimulationSettings(step_ms=0, max_model_len=100)) as sim:
        with pytest.raises(InvalidRequest) as refusal:
            await sim.submit(prompt, n, **fields)
        assert refusal.value.param == param
        assert sim.engine.open_sequences == 0
