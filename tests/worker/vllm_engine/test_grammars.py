"""Grammars are checked without an engine, with the compiler that the engine's first grammar selected."""

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.lazily import Lazily
from tests.worker.vllm_engine.older import skip_if_clamped
from tests.workers import until
from tokenwire.errors import InvalidRequest
from tokenwire.process.shared_options import default_cache_dir
from tokenwire.worker.vllm_engine.embedded_model import prepare_embedded_model

if TYPE_CHECKING:
    from tokenwire.worker.vllm_engine.grammars import GrammarCheck

checks = Lazily("tokenwire.worker.vllm_engine.grammars")
transformers = Lazily("transformers")
vllm_sampling = Lazily("vllm.sampling_params")

pytestmark = pytest.mark.engine

STUCK = '{"oneOf": [{"$ref": "#"}]}'
ENCODED = '{"$ref": "#/$defs/a%62", "$defs": {"ab": {"type": "string"}}}'


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """The embedded model's tokenizer."""
    return transformers.AutoTokenizer.from_pretrained(prepare_embedded_model(default_cache_dir(), lambda _: None))


@pytest_asyncio.fixture
async def check(tokenizer: Any) -> AsyncIterator["GrammarCheck"]:
    """A check without an earlier grammar."""
    config = SimpleNamespace(
        structured_outputs_config=SimpleNamespace(disable_any_whitespace=False, disable_additional_properties=False),
        model_config=SimpleNamespace(get_vocab_size=lambda: 49152, hf_config=SimpleNamespace(model_type="llama")),
        speculative_config=None,
    )
    fresh: GrammarCheck = checks.GrammarCheck(config, tokenizer)
    yield fresh
    await fresh.close()


async def look(check: "GrammarCheck", compiler: str, tenant: str = "", **grammar: Any) -> None:
    """Check a tenant's grammar that vLLM has verified for a compiler."""
    params = vllm_sampling.SamplingParams(structured_outputs=vllm_sampling.StructuredOutputsParams(**grammar))
    params.structured_outputs._backend = compiler
    await check.reject(params, tenant)


@pytest.mark.parametrize("compiler", ["xgrammar", "guidance"])
@pytest.mark.parametrize("grammar", [{"json": STUCK}, {"grammar": "root ::= root"}, {"regex": r"[^\s\S]"}])
async def test_a_grammar_without_output_is_rejected(
    check: "GrammarCheck", compiler: str, grammar: dict[str, str]
) -> None:
    """By both compilers between which vLLM chooses."""
    if compiler == "xgrammar":
        skip_if_clamped(grammar.get("regex", ""))
    with pytest.raises(InvalidRequest, match="allows no output at all"):
        await look(check, compiler, **grammar)


@pytest.mark.parametrize("compiler", ["xgrammar", "guidance"])
async def test_a_grammar_with_output_is_accepted(check: "GrammarCheck", compiler: str) -> None:
    """Also several at a time."""
    grammars = ({"regex": "a*"}, {"regex": ""}, {"json": '{"type": "object"}'}, {"grammar": 'root ::= "x"'})
    await asyncio.gather(*(look(check, compiler, **grammar) for grammar in grammars))


async def test_the_first_grammar_selects_the_compiler(check: "GrammarCheck") -> None:
    """Guidance supports references with escapes, xgrammar does not; the engine core uses only one of them."""
    await look(check, "guidance", json=ENCODED)
    await look(check, "xgrammar", json=ENCODED)

    with pytest.raises(InvalidRequest, match="cannot be compiled: 'Cannot find field a%62 in"):
        await look(checks.GrammarCheck(check._config, check._tokenizer), "xgrammar", json=ENCODED)
    with pytest.raises(InvalidRequest, match="allows no output"):
        await look(check, "xgrammar", json=STUCK)


async def test_an_unknown_compiler_is_left_to_vllm(check: "GrammarCheck") -> None:
    """And so are requests without a grammar."""
    await look(check, "outlines", json=STUCK)
    await check.reject(vllm_sampling.SamplingParams())


def schema(*lengths: int) -> str:
    """Return a schema of strings of these lengths."""
    return json.dumps({"type": "object", "properties": {f"p{n}": {"type": "string", "maxLength": n} for n in lengths}})


async def test_a_schema_that_takes_too_long_is_rejected_and_delays_no_other(
    check: "GrammarCheck", monkeypatch: pytest.MonkeyPatch
) -> None:
    """As expressions are; what was compiled in time, or not, is not compiled on trial again."""
    monkeypatch.setenv("VLLM_REGEX_COMPILATION_TIMEOUT_S", "600")
    await look(check, "xgrammar", json=schema(10))
    monkeypatch.setenv("VLLM_REGEX_COMPILATION_TIMEOUT_S", "1")
    slow, ended = schema(*range(2000, 2016)), list[str]()

    async def reject() -> None:
        with pytest.raises(InvalidRequest, match=r"structured_outputs\.json takes longer than 1 s to") as caught:
            await look(check, "xgrammar", json=slow)
        assert caught.value.param == "structured_outputs.json"
        ended.append("slow")

    async def accept() -> None:
        await look(check, "xgrammar", json='{"type": "object"}')
        await look(check, "xgrammar", json=schema(10))
        ended.append("quick")

    await asyncio.gather(reject(), accept())
    assert ended == ["quick", "slow"]
    assert not check._process._process.is_running
    await reject()
    assert not check._process._process.is_running


@pytest.mark.parametrize(
    ("is_tried", "grammar"),
    [
        (True, {"grammar": "root ::= " + "[a-z]? " * 200 + '"x"'}),
        (True, {"regex": ".?" * 100}),
        (True, {"regex": "[a-z]{9}"}),
        (True, {"json": r'{"type": "string", "max\u004cength": 2000}'}),
        (True, {"json": json.dumps({"type": "object", "properties": {f"property {n}": {} for n in range(900)}})}),
        (True, {"grammar": "root ::= " + " | ".join([f'"choice {n}"' for n in range(2_000)])}),
        (True, {"json": '{"type": "object", "patternProperties": {"^a+b*$": {"type": "string"}}}'}),
        (False, {"json": r'{"type": "string", "description": "a \"quoted\" word"}'}),
        (
            False,
            {"grammar": r'root ::= "a \"quoted\" choice" | "another one" | "one more of those that are chosen from"'},
        ),
        (False, {"json_object": True}),
        (False, {"regex": "yes|no"}),
        (False, {"grammar": 'root ::= "x" | "y"'}),
    ],
)
async def test_what_may_take_long_is_tried_first(
    check: "GrammarCheck", is_tried: bool, grammar: dict[str, Any]
) -> None:
    """Long grammars and expressions, and repetitions, however they are written; what everybody sends is not."""
    check._process = process = TrialProcess()  # type: ignore[assignment]
    process.proceed.release()
    await look(check, "xgrammar", **grammar)

    assert bool(process.tried) is is_tried


class TrialProcess:
    """A process that pretends to compile, until the test lets it."""

    def __init__(self) -> None:
        self.tried: list[str] = []
        self.proceed = asyncio.Semaphore(0)

    async def compiles_within(self, seconds: float, kind: str, grammar: str) -> bool:
        """Wait until it may proceed."""
        self.tried.append(grammar)
        await self.proceed.acquire()
        return True

    async def close(self) -> None:
        """Do nothing."""


async def test_tenants_take_turns_at_their_trials(check: "GrammarCheck") -> None:
    """One with many new schemas delays another by one of them; equal ones are tried once."""
    check._process = process = TrialProcess()  # type: ignore[assignment]
    greedy = [asyncio.create_task(look(check, "xgrammar", "greedy", json=schema(n))) for n in range(1, 5)]
    greedy.append(asyncio.create_task(look(check, "xgrammar", "greedy", json=schema(4))))
    await until(lambda: bool(process.tried))
    small = asyncio.create_task(look(check, "xgrammar", "small", json=schema(9)))
    await until(lambda: "small" in check._process_turns._waiting)
    for _ in range(5):
        process.proceed.release()
    await asyncio.gather(small, *greedy)

    assert process.tried == [schema(n) for n in (1, 9, 2, 3, 4)]
