"""A simulated engine's replies are scripted by what was asked, and go on wherever they are continued."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.simulated_engine.simulation import EOS, PROMPT, Harness, simulation
from tokenwire.errors import EngineFailed
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.simulated_engine.engine import SimulatedEngine, SimulationSettings
from tokenwire.worker.simulated_engine.model import load_model
from tokenwire.worker.simulated_engine.replies import ScriptedReplies
from tokenwire.worker.simulated_engine.reply_rules import ReplyRule
from tokenwire.worker.simulated_engine.tokens import Script

ASKED = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
RULES = (
    ReplyRule(r"made-by-42<\|im_end\|>\n<\|im_start\|>assistant\n\Z", "Done: “ü” 🎉."),
    ReplyRule(r"name is (?P<name>\w+)", "Hello {{name}}, hello."),
    ReplyRule("silence", ""),
    ReplyRule("repeat", "aaaaaaaa"),
    ReplyRule("Hello", "Someone said hello."),
    ReplyRule("hello", "<call>{}</call>"),
)
SETTINGS = SimulationSettings(step_ms=0, replies=RULES)


def chatml_ids(text: str) -> list[int]:
    """Return a text's ids in the built-in tokenizer."""
    parts = text.replace("<|im_start|>", "\0").replace("<|im_end|>", "\1").encode()
    return [{0: 257, 1: EOS}.get(byte, byte) for byte in parts]


async def reply_to(sim: Harness, asked: str, **fields: Any) -> str:
    """Return the reply to a message, with EOS as a mark."""
    result = await sim.run(chatml_ids(ASKED.format(asked)), max_tokens=100, **fields)
    assert result.finish.eos_token_id == EOS
    return bytes(0 if token == EOS else token for token in result.ids).decode().replace("\0", "$")


async def test_the_first_rule_that_is_found_gives_the_reply() -> None:
    """Special tokens are part of the prompt's text; the reply ends with EOS, which stops it."""
    async with simulation(SETTINGS) as sim:
        assert await reply_to(sim, "It prints made-by-42") == "Done: “ü” 🎉.$"
        assert await reply_to(sim, "made-by-42. Hello! My name is Ada.") == "Hello Ada, hello.$"
        assert await reply_to(sim, "silence") == "$"
        assert await reply_to(sim, "hello") == "<call>{}</call>$"


async def test_other_prompts_get_what_they_get_without_rules() -> None:
    """Or the engine's script, if it has one."""
    script = {"script": (72, 73)}
    async with simulation(SETTINGS) as with_rules, simulation() as without:
        assert (await with_rules.run()).ids == (await without.run()).ids
    async with simulation(SimulationSettings(step_ms=0, replies=RULES, **script)) as sim:  # type: ignore[arg-type]
        assert (await sim.run(max_tokens=4)).ids == [72, 73, 72, 73]
        assert await reply_to(sim, "hello") == "<call>{}</call>$"


@given(
    asked=st.sampled_from(["made-by-42", "My name is Hello", "silence", "repeat", "Hello", "hello", "<call>hello"]),
    cut=st.integers(0, 40),
    min_tokens=st.sampled_from([0, 30]),
    before=st.sampled_from(["", ASKED.format("hello") + "<call>{}</call><|im_end|>\n"]),
)
@settings(max_examples=200, deadline=None)
async def test_a_continued_reply_goes_on(asked: str, cut: int, min_tokens: int, before: str) -> None:
    """From prompt and any of its tokens: in the middle of a character, after its end, and when continued twice."""
    prompt = chatml_ids(before + ASKED.format(asked))
    async with simulation(SETTINGS) as first, simulation(SETTINGS) as second:
        full = await first.run(prompt, max_tokens=60, min_tokens=min_tokens)
        kept = full.ids[: min(cut, len(full.ids) - 1)]
        least = max(0, min_tokens - len(kept))
        rest = await second.run(prompt + kept, max_tokens=60 - len(kept), min_tokens=least)
    assert kept + rest.ids == full.ids
    assert rest.finish == full.finish


async def test_parameters_apply_to_scripted_replies() -> None:
    """Lengths, stop ids, sequences and log-probabilities are as for any reply; forced ids come before a script."""
    prompt = chatml_ids(ASKED.format("hello"))
    async with simulation(SETTINGS) as sim:
        short = await sim.run(prompt, max_tokens=3)
        assert (bytes(short.ids), short.finish.reason) == (b"<ca", pb.FINISH_REASON_LENGTH)
        long = await sim.run(prompt, max_tokens=100, min_tokens=20)
        assert (bytes(long.ids[:15]), set(long.ids[15:]), len(long.ids)) == (b"<call>{}</call>", {EOS}, 21)
        assert (await sim.run(prompt, stop_token_ids=[ord("{")])).finish.stop_token_id == ord("{")
        both = await sim.submit(prompt, n=2, seed=1, logprobs=2)
        await sim.finish()
        for sequence in both:
            rows = sim.results[sequence].logprobs
            assert bytes(sim.results[sequence].ids[:-1]) == b"<call>{}</call>"
            assert [row.token_ids[0] for row in rows] == sim.results[sequence].ids
        assert (await sim.run(prompt, max_tokens=2, trace_decode_token_ids=[9, 8])).ids == [9, 8]


async def test_a_long_prompt_is_read_in_parts() -> None:
    """Other tasks run meanwhile; an abort in between ends the request as soon as it has started."""
    async with simulation(SETTINGS) as sim:
        prompt = chatml_ids("é" * 8000 + "hello")
        submitting = asyncio.create_task(sim.submit(prompt))
        await asyncio.sleep(0)
        assert sim.engine.open_sequences == 0
        assert sim.engine._searches is not None
        await sim.engine.abort(sim.engine._searches.open)
        (sequence,) = await submitting
        await sim.finish()
        assert sim.results[sequence].finish.reason == pb.FINISH_REASON_ABORT
        assert bytes((await sim.run(prompt)).ids[:-1]) == b"<call>{}</call>"


async def test_common_beginnings_are_not_all_looked_at() -> None:
    """A prompt full of places where a reply may begin costs a bounded number of searches."""
    model = load_model(None, None)
    searched: list[str] = []

    class Counted(ReplyRule):
        def matcher(self) -> Any:
            return searched.append

    replies = ScriptedReplies([Counted("(?P<a>.)", "<{{a}}")], model)
    assert await replies.find(chatml_ids("<" * 1000)) is None
    assert len(searched) < 100


async def test_a_reply_needs_an_end(tmp_path: Path) -> None:
    """A tokenizer without EOS fails the start."""
    model = load_model(None, None)
    (tmp_path / "tokenizer.json").write_bytes(model.files["tokenizer.json"])
    with pytest.raises(EngineFailed, match="--sim-replies needs a tokenizer with an EOS token"):
        await SimulatedEngine(SimulationSettings(model_dir=tmp_path, replies=RULES)).start()


def test_rules_are_part_of_what_the_model_is() -> None:
    """No reply continues on an engine with other rules; without rules, the digest is that of the other settings."""
    digests = {SimulationSettings(replies=rules).weights_digest for rules in ((), RULES, RULES[1:])}
    assert len(digests) == 3


async def test_an_empty_prompt_is_refused_all_the_same() -> None:
    """A rule for any prompt does not change what is valid."""
    model = load_model(None, None)
    replies = ScriptedReplies([ReplyRule("", "Yes.")], model)
    assert await replies.find([]) == Script(tuple(b"Yes."), EOS)
    assert await replies.find(PROMPT) == Script(tuple(b"Yes."), EOS)
