"""Replies of a simulated engine under grammars are valid and end; what cannot be honoured is an error that says so."""

import asyncio
import json
import re
from typing import Any

import pytest

from tests.worker.simulated_engine.simulation import EOS, Harness, simulation
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.simulated_engine import engine as engine_module
from tokenwire.worker.simulated_engine.engine import SimulatedEngine, SimulationSettings
from tokenwire.worker.simulated_engine.grammars import Grammars
from tokenwire.worker.simulated_engine.reply_rules import ReplyRule

pytest.importorskip("xgrammar")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "integer"}}},
    "required": ["name", "tags"],
    "additionalProperties": False,
}
TAG = {"type": "tag", "begin": "<call>", "content": {"type": "json_schema", "json_schema": SCHEMA}, "end": "</call>"}
OLD_TAG = {"structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}], "triggers": ["<f>"]}
PROMPT = list(b"Write.")


def is_valid(text: str) -> bool:
    """Return whether a text is valid under the schema."""
    value = json.loads(text)
    return set(value) == {"name", "tags"} and isinstance(value["name"], str) and all(map(_is_integer, value["tags"]))


def _is_integer(value: Any) -> bool:
    return type(value) is int


CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "schema": ({"json_schema": json.dumps(SCHEMA)}, is_valid),
    "object": ({"json_object": True}, lambda text: isinstance(json.loads(text), dict)),
    "regex": ({"regex": "[a-z]+@[a-z]+[.]org|é{2}"}, re.compile("[a-z]+@[a-z]+[.]org|é{2}").fullmatch),
    "choice": ({"choice": pb.Choices(values=["yes", 'n"ü'])}, {"yes", 'n"ü'}.__contains__),
    "grammar": ({"grammar": 'root ::= "(" root ")" | [0-9]+'}, re.compile(r"\(*\d+\)*").fullmatch),
    "lark": ({"grammar": 'start: "a" | "b" start'}, re.compile("b*a").fullmatch),
    "tag": (
        {"structural_tag": json.dumps({"type": "structural_tag", "format": TAG})},
        lambda text: is_valid(text.removeprefix("<call>").removesuffix("</call>")),
    ),
    "old tag": ({"structural_tag": json.dumps(OLD_TAG)}, lambda text: "<f>" not in text or "</f>" in text),
}


async def write(sim: Harness, prompt: list[int] = PROMPT, **fields: Any) -> str:
    """Return a reply that ended by itself."""
    outputs = {
        name: fields.pop(name) for name in list(fields) if name in pb.StructuredOutputs.DESCRIPTOR.fields_by_name
    }
    result = await sim.run(prompt, structured_outputs=pb.StructuredOutputs(**outputs), **{"max_tokens": 4000, **fields})
    assert result.finish.eos_token_id == EOS
    return bytes(token for token in result.ids if token != EOS).decode()


async def test_replies_are_valid_and_end() -> None:
    """Of each kind; another engine writes the same, and other seeds others."""
    async with simulation() as sim, simulation() as other:
        for outputs, is_right in CASES.values():
            texts = [await write(sim, seed=seed, **outputs) for seed in range(10)]
            assert all(map(is_right, texts)), texts
            assert len(set(texts)) > 1
            assert await write(other, seed=3, **outputs) == texts[3]


async def test_parameters_apply_under_a_grammar() -> None:
    """Sequences differ as their seeds do, and lengths and allowed ids are kept to."""
    async with simulation() as sim:
        outputs = pb.StructuredOutputs(regex="[a-z]+")
        both = await sim.submit(PROMPT, n=2, seed=5, structured_outputs=outputs, max_tokens=4000, logprobs=1)
        await sim.finish()
        for index, sequence in enumerate(both):
            assert bytes(sim.results[sequence].ids[:-1]).decode() == await write(sim, seed=5 + index, regex="[a-z]+")
            assert len(sim.results[sequence].logprobs) == len(sim.results[sequence].ids)
        assert len(await write(sim, regex="[a-z]+", min_tokens=50)) >= 50
        cut = await sim.run(PROMPT, max_tokens=5, structured_outputs=pb.StructuredOutputs(regex="[a-z]{9}"))
        assert (len(cut.ids), cut.finish.reason) == (5, pb.FINISH_REASON_LENGTH)
        assert set(await write(sim, regex="[a-z]{9}", allowed_token_ids=[97, 98, EOS])) <= {"a", "b"}
        assert "a" not in await write(sim, regex="[ab]{9}", logit_bias={97: -100.0})


@pytest.mark.parametrize(
    ("outputs", "param", "message"),
    [
        ({"regex": "("}, "regex", "cannot be compiled"),
        ({"json_schema": '{"type": "integer", "multipleOf": 3}'}, "json", "has 'multipleOf', which a simulated engine"),
        ({"regex": "a{5000}"}, "regex", "has no reply that ends within 4096 tokens"),
    ],
)
async def test_what_cannot_be_honoured_is_an_error(outputs: dict[str, Any], param: str, message: str) -> None:
    """It names the constraint and the reason."""
    async with simulation() as sim:
        with pytest.raises(InvalidRequest, match=message) as refusal:
            await write(sim, **outputs, max_tokens=9000)
        assert refusal.value.param == f"structured_outputs.{param}"
        assert sim.engine.open_sequences == 0


async def test_a_scripted_reply_is_held_against_the_grammar() -> None:
    """One that breaks it is an error of that request; reasoning before it is no part of it."""
    rules = (ReplyRule("yes", "yes"), ReplyRule("long", "yes!"), ReplyRule("think", "Hm.</think>yes"))
    async with simulation(SimulationSettings(step_ms=0, replies=rules)) as sim:
        assert await write(sim, list(b"yes"), regex="yes") == "yes"
        with pytest.raises(InvalidRequest, match="does not allow the scripted reply, after 'yes'"):
            await write(sim, list(b"long"), regex="yes")
        with pytest.raises(InvalidRequest, match="it ends too early"):
            await write(sim, list(b"yes"), regex="yes!")
        thinking = {"submit": pb.Submit(reasoning_ended=False), "regex": "yes"}
        assert await write(sim, list(b"think"), **thinking) == "Hm.</think>yes"


async def test_a_grammar_that_takes_too_long_is_given_up() -> None:
    """The process ends with it, and the next grammar gets another one; steps go on meanwhile."""
    async with simulation() as sim:
        assert sim.engine._searches is not None
        sim.engine._searches._scripts._grammars = slow = Grammars(None, limit_s=0)
        with pytest.raises(InvalidRequest, match="takes longer than 0 s"):
            await write(sim, regex="a")
        assert not slow._process.is_running
        slow._limit_s = 20.0
        writing = asyncio.create_task(write(sim, regex="a"))
        assert len((await sim.run(max_tokens=5)).ids) == 5
        assert await writing == "a"


async def test_without_xgrammar_it_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that coordinators send such requests elsewhere; one that comes all the same is refused."""
    monkeypatch.setattr(engine_module, "can_use_grammars", lambda: False)
    async with simulation() as sim:
        assert "structured_outputs" in SimulatedEngine(SimulationSettings()).capabilities().unsupported
        with pytest.raises(InvalidRequest, match="xgrammar is not installed"):
            await write(sim, regex="a")
