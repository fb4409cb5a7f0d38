"""Grammars are checked without an engine, with the compiler that the engine's first grammar selected."""

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.lazily import Lazily
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


@pytest.fixture
def check(tokenizer: Any) -> "GrammarCheck":
    """A check without an earlier grammar."""
    config = SimpleNamespace(
        structured_outputs_config=SimpleNamespace(disable_any_whitespace=False, disable_additional_properties=False),
        model_config=SimpleNamespace(get_vocab_size=lambda: 49152, hf_config=SimpleNamespace(model_type="llama")),
        speculative_config=None,
    )
    fresh: GrammarCheck = checks.GrammarCheck(config, tokenizer)
    return fresh


async def look(check: "GrammarCheck", compiler: str, **grammar: Any) -> None:
    """Check a grammar that vLLM has verified for a compiler."""
    params = vllm_sampling.SamplingParams(structured_outputs=vllm_sampling.StructuredOutputsParams(**grammar))
    params.structured_outputs._backend = compiler
    await check.reject_unsatisfiable(params)


@pytest.mark.parametrize("compiler", ["xgrammar", "guidance"])
@pytest.mark.parametrize("grammar", [{"json": STUCK}, {"grammar": "root ::= root"}, {"regex": r"[^\s\S]"}])
async def test_a_grammar_without_output_is_rejected(
    check: "GrammarCheck", compiler: str, grammar: dict[str, str]
) -> None:
    """By both compilers between which vLLM chooses."""
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
    await check.reject_unsatisfiable(vllm_sampling.SamplingParams())
