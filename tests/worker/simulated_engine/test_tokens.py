"""Tokens of a simulated engine: pure functions of the ids before them, with their ends and log-probabilities."""

from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.simulated_engine.simulation import EOS, PROMPT, simulation
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.simulated_engine.engine import SimulationSettings


@given(
    prompt=st.lists(st.integers(0, 255), min_size=1, max_size=70),
    cut=st.integers(1, 39),
    engine_seed=st.integers(0, 3),
    seed=st.none() | st.integers(-(2**63), 2**63 - 2),
    temperature=st.sampled_from([None, 0.0, 0.7]),
)
@settings(max_examples=60, deadline=None)
async def test_a_continued_request_gets_the_same_tokens(
    prompt: list[int], cut: int, engine_seed: int, seed: int | None, temperature: float | None
) -> None:
    """A request that continues on another engine from prompt and first tokens gets the same tokens and finish."""
    config = SimulationSettings(step_ms=0, seed=engine_seed, eos_rate=0.02)
    async with simulation(config) as first, simulation(config) as second:
        full = await first.run(prompt, max_tokens=40, seed=seed, temperature=temperature)
        kept = full.ids[: min(cut, len(full.ids) - 1)]
        rest = await second.run(prompt + kept, max_tokens=40 - len(kept), seed=seed, temperature=temperature)
    assert kept + rest.ids == full.ids
    assert rest.finish == full.finish


@pytest.mark.parametrize(
    "params",
    [{"seed": 5}, {"temperature": 0.0, "presence_penalty": 0.5}, {"temperature": 0.0, "bad_words": ["a"]}],
)
async def test_generators_repeat_only_runs_from_the_start(params: dict[str, Any]) -> None:
    """With generators a run from the start repeats its tokens, and one from prompt and tokens does not."""
    config = SimulationSettings(step_ms=0, seeds="generator")
    async with simulation(config) as first, simulation(config) as second:
        full = (await first.run(max_tokens=40, **params)).ids
        assert (await second.run(max_tokens=40, **params)).ids == full
        assert (await second.run(PROMPT + full[:20], max_tokens=20, **params)).ids != full[20:]
        assert not second.engine.capabilities().positional_seeds


async def test_unseeded_generators_differ_each_time() -> None:
    """Greedy requests still continue from their tokens; unseeded ones get other tokens each time."""
    async with simulation(SimulationSettings(step_ms=0, seeds="generator")) as sim:
        assert (await sim.run(max_tokens=40)).ids != (await sim.run(max_tokens=40)).ids
        full = (await sim.run(max_tokens=40, temperature=0.0)).ids
        assert (await sim.run(PROMPT + full[:20], max_tokens=20, temperature=0.0)).ids == full[20:]


async def test_tokens_do_not_depend_on_the_batch() -> None:
    """A sequence gets the same tokens alone and among others."""
    async with simulation() as alone, simulation() as crowd:
        expected = await alone.run(max_tokens=50)
        sequences = [(await crowd.submit(PROMPT[i:], max_tokens=30 + 20 * (i == 0)))[0] for i in range(20)]
        await crowd.finish()
    assert crowd.results[sequences[0]].ids == expected.ids


async def test_a_sequence_ends_at_its_token_limit() -> None:
    """A sequence ends with LENGTH after max_tokens, or without it where the context ends."""
    async with simulation(SimulationSettings(step_ms=0, max_model_len=100)) as sim:
        limited = await sim.run(max_tokens=33)
        unlimited = await sim.run(max_tokens=None)
        too_many = await sim.run(max_tokens=1000)
    assert [len(result.ids) for result in (limited, unlimited, too_many)] == [33, 60, 60]
    assert {result.finish.reason for result in (limited, unlimited, too_many)} == {pb.FINISH_REASON_LENGTH}


async def test_eos_ends_a_sequence() -> None:
    """At the configured rate a sequence ends with EOS, which stays among its tokens, unless EOS is ignored."""
    async with simulation(SimulationSettings(step_ms=0, eos_rate=0.1)) as sim:
        ended = await sim.run(max_tokens=1000)
        ignored = await sim.run(max_tokens=1000, ignore_eos=True)
    assert ended.finish.reason == pb.FINISH_REASON_STOP
    assert ended.finish.WhichOneof("matched") == "eos_token_id"
    assert ended.ids[-1] == ended.finish.eos_token_id == EOS
    assert len(ignored.ids) == 1000


async def test_a_stop_token_id_ends_a_sequence() -> None:
    """It stays among the tokens and is in the finish."""
    async with simulation() as sim:
        free = await sim.run(max_tokens=100)
        stop = free.ids[42]
        stopped = await sim.run(max_tokens=100, stop_token_ids=[stop, 3])
    assert stopped.ids == free.ids[: free.ids.index(stop) + 1]
    assert stopped.finish == pb.Finish(reason=pb.FINISH_REASON_STOP, stop_token_id=stop)


async def test_min_tokens_delay_the_end() -> None:
    """Neither EOS nor a stop id comes among the first min_tokens."""
    async with simulation(SimulationSettings(step_ms=0, eos_rate=0.5)) as sim:
        result = await sim.run(max_tokens=500, min_tokens=100, stop_token_ids=list(range(64, 127)))
    assert result.finish.reason == pb.FINISH_REASON_STOP
    assert len(result.ids) > 100
    assert not set(result.ids[:100]) & {EOS, *range(64, 127)}


async def test_a_script_is_repeated() -> None:
    """A script is generated cyclically, and its EOS ends the sequence."""
    async with simulation(SimulationSettings(step_ms=0, script=(72, 105, 33))) as sim:
        assert (await sim.run(max_tokens=7)).ids == [72, 105, 33, 72, 105, 33, 72]
    async with simulation(SimulationSettings(step_ms=0, script=(72, EOS))) as sim:
        result = await sim.run(max_tokens=7)
    assert (result.ids, result.finish.eos_token_id) == ([72, EOS], EOS)


async def test_each_token_has_a_row_of_logprobs() -> None:
    """A row has the sampled token first, then the likeliest in order of rank."""
    async with simulation() as sim:
        plain = await sim.run()
        scored = await sim.run(logprobs=5)
    assert scored.ids == plain.ids
    assert len(scored.logprobs) == len(scored.ids)
    for token, rows in zip(scored.ids, scored.logprobs, strict=True):
        assert (rows.width, len(rows.token_ids), rows.token_ids[0]) == (6, 6, token)
        rank = rows.sampled_ranks[0]
        assert rows.token_ids[rank] == token
        assert rows.logprobs[rank] == rows.logprobs[0]
        assert list(rows.logprobs[1:]) == sorted(rows.logprobs[1:], reverse=True)
        assert len(set(rows.token_ids[1:])) == 5


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_log_probabilities_of_sampled_tokens_alone_are_those_of_their_rows(temperature: float) -> None:
    """Beside sequences with rows, and with none, through all blocks and a preemption."""
    async with simulation(SimulationSettings(step_ms=0, kv_tokens=256, max_model_len=200)) as sim:
        fields: dict[str, Any] = {"temperature": temperature, "max_tokens": 90}
        (rows,) = await sim.submit(**fields, logprobs=1)
        (scored,) = await sim.submit(**fields, logprobs=0, sampled_only=True)
        (plain,) = await sim.submit(**fields)
        await sim.finish()
    results = [sim.results[each] for each in (rows, scored, plain)]
    assert results[0].ids == results[1].ids == results[2].ids
    first = [each.logprobs[0] for each in results[0].logprobs]
    assert [*array("f", results[1].scores)] == first
    assert len({*first}) > 50
    assert not results[1].logprobs
    assert not results[2].scores


async def test_logprobs_of_chosen_ids_and_of_the_prompt() -> None:
    """Chosen ids fill the columns in their order, and a prompt has a row per token after the first."""
    async with simulation() as sim:
        result = await sim.run(max_tokens=3, logprob_token_ids=[70, 71], prompt_logprobs=1)
    assert [list(rows.token_ids[1:]) for rows in result.logprobs] == [[70, 71]] * 3
    prompt = result.prompt_logprobs
    assert (prompt.width, len(prompt.sampled_ranks)) == (2, len(PROMPT) - 1)
    assert list(prompt.token_ids[::2]) == PROMPT[1:]
