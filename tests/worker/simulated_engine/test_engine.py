"""A simulated engine: its tokens, their ends, rejected requests, weights, adapters and consecutive pauses."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.worker.simulated_engine.simulation import EOS, FAST, PROMPT, simulation
from tokenwire.errors import InvalidRequest, Unavailable
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import PauseMode, Sequence
from tokenwire.worker.simulated_engine.engine import SimulatedEngine, SimulationSettings

RED = pb.Submit(lora=pb.LoraAdapter(name="red", id=7, path="/red"))


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
        whole = await first.run(prompt, max_tokens=40, seed=seed, temperature=temperature)
        kept = whole.ids[: min(cut, len(whole.ids) - 1)]
        rest = await second.run(prompt + kept, max_tokens=40 - len(kept), seed=seed, temperature=temperature)
    assert kept + rest.ids == whole.ids
    assert rest.finish == whole.finish


@pytest.mark.parametrize(
    "params",
    [{"seed": 5}, {"temperature": 0.0, "presence_penalty": 0.5}, {"temperature": 0.0, "bad_words": ["a"]}],
)
async def test_generators_repeat_only_runs_from_the_start(params: dict[str, Any]) -> None:
    """With generators a run from the start repeats its tokens, and one from prompt and tokens does not."""
    config = SimulationSettings(step_ms=0, seeds="generator")
    async with simulation(config) as first, simulation(config) as second:
        whole = (await first.run(max_tokens=40, **params)).ids
        assert (await second.run(max_tokens=40, **params)).ids == whole
        assert (await second.run(PROMPT + whole[:20], max_tokens=20, **params)).ids != whole[20:]
        assert not second.engine.capabilities().positional_seeds


async def test_unseeded_generators_differ_each_time() -> None:
    """Greedy requests still continue from their tokens; unseeded ones get other tokens each time."""
    async with simulation(SimulationSettings(step_ms=0, seeds="generator")) as sim:
        assert (await sim.run(max_tokens=40)).ids != (await sim.run(max_tokens=40)).ids
        whole = (await sim.run(max_tokens=40, temperature=0.0)).ids
        assert (await sim.run(PROMPT + whole[:20], max_tokens=20, temperature=0.0)).ids == whole[20:]


async def test_tokens_do_not_depend_on_the_batch() -> None:
    """A sequence gets the same tokens alone and among others."""
    async with simulation() as alone, simulation() as crowd:
        expected = await alone.run(max_tokens=50)
        sequences = [(await crowd.submit(PROMPT[i:], max_tokens=30 + 20 * (i == 0)))[0] for i in range(20)]
        await crowd.finish()
    assert crowd.results[sequences[0]].ids == expected.ids


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


async def test_text_is_printable() -> None:
    """Seeded tokens decode to printable text, with no special token among them."""
    async with simulation() as sim:
        ids = (await sim.run(max_tokens=500)).ids
        tokenizer = Tokenizer.from_buffer(sim.engine.tokenizer_files()["tokenizer.json"])
    text = tokenizer.decode(ids, skip_special_tokens=False)
    assert text.isprintable()
    assert len(text) == 500
    assert len(set(ids)) > 60


async def test_the_builtin_tokenizer_has_one_id_per_byte() -> None:
    """The built-in tokenizer maps each byte to its own id, and has the ChatML tokens."""
    async with simulation() as sim:
        files = sim.engine.tokenizer_files()
        model = sim.engine.describe()
    tokenizer = Tokenizer.from_buffer(files["tokenizer.json"])
    assert tokenizer.encode("<|im_start|>aé\n<|im_end|>").ids == [257, 0x61, 0xC3, 0xA9, 0x0A, EOS]
    assert tokenizer.decode(list("naïve 🙂".encode())) == "naïve 🙂"
    assert "<|im_start|>" in json.loads(files["tokenizer_config.json"])["chat_template"]
    assert (model.max_token_id, model.max_model_len, list(model.names)) == (258, 32768, ["simulated"])


async def test_a_model_directory_is_read(tmp_path: Path) -> None:
    """A model's own tokenizer files are served, and its limits, stop ids and sampling defaults are kept."""
    async with simulation() as sim:
        files = sim.engine.tokenizer_files()
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 512, "vocab_size": 300}')
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [258, 65], "temperature": 0.6}')
    async with simulation(SimulationSettings(step_ms=0, model_dir=tmp_path)) as sim:
        model = sim.engine.describe()
        assert sim.engine.tokenizer_files().keys() == {*files, "generation_config.json"}
        result = await sim.run(max_tokens=None)
    assert (model.max_token_id, model.max_model_len, list(model.names)) == (299, 512, [tmp_path.name])
    assert json.loads(model.default_sampling_params_json) == {"temperature": 0.6}
    assert (result.ids[-1], result.finish.stop_token_id) == (65, 65)


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


async def test_logprobs_of_chosen_ids_and_of_the_prompt() -> None:
    """Chosen ids fill the columns in their order, and a prompt has a row per token after the first."""
    async with simulation() as sim:
        result = await sim.run(max_tokens=3, logprob_token_ids=[70, 71], prompt_logprobs=1)
    assert [list(rows.token_ids[1:]) for rows in result.logprobs] == [[70, 71]] * 3
    prompt = result.prompt_logprobs
    assert (prompt.width, len(prompt.sampled_ranks)) == (2, len(PROMPT) - 1)
    assert list(prompt.token_ids[::2]) == PROMPT[1:]


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
        (PROMPT, 1, {"structured_outputs": pb.StructuredOutputs(regex="a+")}, "structured_outputs"),
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


async def test_an_engine_that_is_not_running_refuses_requests() -> None:
    """Before its start and after its stop an engine accepts nothing, and stopping twice is safe."""
    engine = SimulatedEngine(FAST)
    submit, sequence = pb.Submit(prompt_token_ids=PROMPT), Sequence(FrameBuffer(), 0, "request", 0)
    with pytest.raises(Unavailable):
        await engine.submit(submit, [sequence])
    await engine.start()
    await engine.stop()
    await engine.stop()
    with pytest.raises(Unavailable):
        await engine.submit(submit, [sequence])


async def test_weights_and_adapters_change_the_tokens() -> None:
    """Other weights and adapters generate other tokens; the same ones repeat them."""
    async with simulation() as sim:
        results = [await sim.run(), await sim.run(submit=RED)]
        await sim.engine.load_weights("/models/step_1")
        results += [await sim.run(), await sim.run(submit=RED)]
        await sim.engine.load_weights("")

        assert len({tuple(result.ids) for result in results}) == 4
        assert (await sim.run()).ids == results[0].ids


async def test_a_waiting_pause_lets_frozen_sequences_finish() -> None:
    """A pause in mode WAIT lets sequences finish that an earlier one froze."""
    async with simulation() as sim:
        (sequence,) = await sim.submit(max_tokens=50)
        await sim.step()
        await sim.engine.pause(PauseMode.KEEP, clear_cache=False)
        waiting = asyncio.create_task(sim.engine.pause(PauseMode.WAIT, clear_cache=False))

        await sim.finish()
        (held,) = await sim.submit(max_tokens=1)
        stepping = asyncio.create_task(sim.finish())
        await asyncio.wait_for(waiting, 10)
        await sim.engine.resume()
        await stepping

        assert len(sim.results[sequence].ids) == 50
        assert len(sim.results[held].ids) == 1
