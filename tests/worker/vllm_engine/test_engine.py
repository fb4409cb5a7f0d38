"""The real vLLM behind the engine interface: both drivers give the same output, and each sequence ends once.

Every test that takes `run` runs with CoreDriver first and then with GenerateDriver on the same engine.
One file, since its tests share one engine, which is slow to start.
"""

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import pytest_asyncio

from tests.lazily import Lazily
from tests.tiny_model import TINY_MODEL_NAME, tiny_model
from tests.worker.vllm_engine.older import has_engine_option, skip_if_clamped
from tests.worker.vllm_engine.running import RecordedOutput, Run, switch_driver
from tests.workers import until
from tokenwire.errors import EngineFailed, InvalidRequest, Overloaded, TokenwireError, Unavailable, Unsupported
from tokenwire.protocol.prefix_hash import BLOCK_TOKENS, prefix_hashes, scope_of
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.cache.prefix_cache import CacheChange
from tokenwire.worker.engine.interface import PauseMode
from tokenwire.worker.engine.weights_digest import weights_digest
from tokenwire.worker.vllm_engine.vllm_version import installed_vllm

if TYPE_CHECKING:
    from tokenwire.worker.vllm_engine.engine import VllmEngine

arguments_read = Lazily("tokenwire.worker.vllm_engine.arguments")
engines = Lazily("tokenwire.worker.vllm_engine.engine")
sampling = Lazily("tokenwire.worker.vllm_engine.sampling")
unsupported = Lazily("tokenwire.worker.vllm_engine.unsupported")
core_driver = Lazily("tokenwire.worker.vllm_engine.core_driver")

pytestmark = [
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore:Unclosed context:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:`torch.distributed.reduce_op` is deprecated:FutureWarning"),
]

EOS = 2
MAX_MODEL_LEN = 2048
QUEUE_LIMIT = 12
ARGUMENTS = ["--dtype", "float32", "--enforce-eager"]
ARGUMENTS += ["--max-model-len", str(MAX_MODEL_LEN), "--max-num-batched-tokens", "512"]
ARGUMENTS += ["--worker-extension-cls", "tests.worker.vllm_engine.compilations.Compilations"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator["VllmEngine"]:
    """The tiny model."""
    model = await asyncio.to_thread(tiny_model)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        environment.setenv("OMP_NUM_THREADS", "1")
        limit = ["--max-num-queued-reqs", str(QUEUE_LIMIT)] if has_engine_option("max_num_queued_reqs") else []
        arguments = [*ARGUMENTS, *limit]
        engine = engines.VllmEngine(str(model), arguments, [TINY_MODEL_NAME], use_core_driver=True, kv_events=True)
        await engine.start()
    yield engine
    await engine.stop()
    gc.collect()  # vLLM leaves a ZeroMQ context to the collector: its warning is ignored here


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[True, False], ids=["core", "generate"])
async def run(request: pytest.FixtureRequest, engine: "VllmEngine") -> AsyncIterator[Run]:
    """The engine with one of the drivers, as if it had just been started."""
    before = _metrics(engine)
    if not request.param:
        await engine.reset_cache(False, False)
        await engine.set_weight_version("default")
        await switch_driver(engine, request.param)
    run = Run(engine)
    after = _metrics(engine)
    gained = {name: after[name] - before.get(name, 0.0) for name in after} if not request.param else after
    _after_start[request.param] = gained, await _compilations(run)
    yield run
    run.consumer.cancel()


SUM = "What is 2+2?"
_after_start: dict[bool, tuple[dict[str, float], int]] = {}
"""Metrics and compilations with each driver before its first request."""


async def _compilations(run: Run) -> int:
    (count,) = await run.engine.collective_rpc("compilations", None, [], {})
    return int(count)


async def test_warm_up_is_not_counted(run: Run, request: pytest.FixtureRequest) -> None:
    """No metric counts requests of the warm-up."""
    metrics, _ = _after_start[request.node.callspec.params["run"]]
    counted = {name for name, value in metrics.items() if value and name.endswith(("_total", "_count", "_sum"))}
    assert not {name for name in counted if not name.startswith("vllm:engine_sleep")}
    assert metrics["vllm:prompt_tokens_total"] == 0


async def test_the_prefix_cache_is_published(run: Run) -> None:
    """Prompts and replies with the prefix hashes of their ids, separate for a salt; and that it was cleared."""
    received = CacheChange()
    assert run.engine.subscribe_kv_events(received.add)
    prompt = (run.chat("Tell me a story about a worker that remembers.") * 30)[:370]
    salted = pb.Submit(request_id="salted", slots=[0], prompt_token_ids=prompt, cache_salt="salt")
    salted.sampling_params.max_tokens = 1

    (result,) = await run.results(prompt, max_tokens=20, ignore_eos=True)
    (sequence,) = run.sequences(1)
    await run.engine.submit(salted, [sequence])
    await run.until(sequence)

    hashes = prefix_hashes([*prompt, *result.ids])
    expected = {*hashes[: 384 // BLOCK_TOKENS], *prefix_hashes(prompt[:256], scope_of("salt", 0))}
    await until(lambda: received.stored == expected)
    assert await run.engine.reset_cache(False, False)
    await run.results(prompt, max_tokens=1)
    await until(lambda: received.cleared and received.stored == set(hashes[: 256 // BLOCK_TOKENS]))


CASES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "length": {"temperature": 0, "max_tokens": 5},
    "seeded": {"seed": 7, "max_tokens": 20},
    "shaped": {"seed": 3, "max_tokens": 20, "temperature": 1.3, "top_p": 0.9, "top_k": 30, "min_p": 0.01},
    "several": {"n": 3, "seed": 5, "max_tokens": 12, "temperature": 0.9},
    "stop ids": {"temperature": 0, "stop_token_ids": [260, 216, 36, 30]},
    "min_tokens": {"temperature": 0, "min_tokens": 18, "max_tokens": 20},
    "ignore_eos": {"temperature": 0, "ignore_eos": True, "max_tokens": 20},
    "penalties": {"temperature": 0, "repetition_penalty": 1.3, "frequency_penalty": 0.5, "max_tokens": 20},
    "bad words": {"temperature": 0, "bad_words": ["answer", "4"], "max_tokens": 20},
    "allowed ids": {"seed": 1, "allowed_token_ids": [10, 11, 12], "max_tokens": 8},
    "bias": {"temperature": 0, "logit_bias": {504: -100.0}, "max_tokens": 10},
    "regex": {"temperature": 0, "structured_outputs": pb.StructuredOutputs(regex="[0-9]{3}")},
    "choice": {
        "temperature": 0,
        "structured_outputs": pb.StructuredOutputs(choice=pb.Choices(values=["yes", "no"])),
    },
    "logprobs": {"temperature": 0, "logprobs": 3, "max_tokens": 6},
    "sampled logprobs": {"seed": 11, "temperature": 1.5, "logprobs": 0, "max_tokens": 6},
    "chosen logprobs": {"temperature": 0, "logprob_token_ids": [5, 6], "max_tokens": 4},
    "prompt logprobs": {"temperature": 0, "prompt_logprobs": 2, "max_tokens": 2},
}
_first_output: dict[str, tuple[list[dict[str, Any]], list[list[float]]]] = {}
"""Output of each case with the driver that ran first."""


@pytest.mark.parametrize("case", CASES)
async def test_both_drivers_agree(run: Run, case: str) -> None:
    """Both give the same ids, finishes and log-probabilities for the same request."""
    results = await run.results(SUM, **CASES[case])
    seen = [_comparable(result) for result in results]
    values = [_logprobs_of(result) for result in results]
    expected, expected_values = _first_output.setdefault(case, (seen, values))
    assert seen == expected
    assert values == [pytest.approx(each, abs=1e-4) for each in expected_values]


async def test_nothing_is_compiled_for_a_request(run: Run, request: pytest.FixtureRequest) -> None:
    """Everything is compiled before the first request: compilation would stall the others."""
    for params in CASES.values():
        await run.results(SUM, **{**params, "max_tokens": 3, "min_tokens": 0})
    _, before = _after_start[request.node.callspec.params["run"]]
    assert await _compilations(run) == before


def _comparable(result: RecordedOutput) -> dict[str, Any]:
    # How many steps are merged depends on timing.
    made = [token_id for rows in result.logprobs for token_id in rows.token_ids]
    ranks = [rank for rows in result.logprobs for rank in rows.sampled_ranks]
    rows = (made, ranks, {rows.width for rows in result.logprobs})
    prompt = result.prefill.prompt_logprobs if result.prefill is not None else None
    return {"ids": result.ids, "finish": result.finish, "rows": rows, "prompt": prompt and _ids_and_ranks(prompt)}


def _ids_and_ranks(rows: pb.LogprobRows) -> tuple[list[int], list[int], int]:
    return list(rows.token_ids), list(rows.sampled_ranks), rows.width


def _logprobs_of(result: RecordedOutput) -> list[float]:
    return [value for rows in _rows(result) for value in rows.logprobs]


def _rows(result: RecordedOutput) -> list[pb.LogprobRows]:
    assert result.prefill is not None
    return [*result.logprobs, result.prefill.prompt_logprobs]


async def test_a_chat_ends_at_the_end_of_sequence_token(run: Run) -> None:
    """The model generates its reply and stops; EOS is in the finish and stays in the ids."""
    (result,) = await run.results(SUM, temperature=0)
    assert "4" in run.text(result.ids)
    assert result.ids[-1] == EOS
    assert result.finish == pb.Finish(reason=pb.FINISH_REASON_STOP, eos_token_id=EOS)


async def test_a_stop_id_is_distinguished_from_the_end_of_sequence(run: Run) -> None:
    """A stop id of the request ends the sequence, is in the finish, and stays in the ids."""
    (free,) = await run.results(SUM, temperature=0)
    (result,) = await run.results(SUM, temperature=0, stop_token_ids=[free.ids[3]])
    assert result.ids == free.ids[:4]
    assert result.finish == pb.Finish(reason=pb.FINISH_REASON_STOP, stop_token_id=free.ids[3])


async def test_min_tokens_delay_the_end(run: Run) -> None:
    """There is no EOS before min_tokens."""
    (result,) = await run.results(SUM, temperature=0, min_tokens=18, max_tokens=20)
    assert len(result.ids) >= 18


async def test_bad_words_do_not_appear(run: Run) -> None:
    """Bad words are not generated."""
    (result,) = await run.results(SUM, temperature=0, bad_words=["answer", "4"], max_tokens=20)
    assert "answer" not in run.text(result.ids)


async def test_a_regex_is_followed(run: Run) -> None:
    """Structured output matches the pattern, then ends."""
    (result,) = await run.results(SUM, temperature=0, structured_outputs=pb.StructuredOutputs(regex="[0-9]{3}"))
    text = run.text(result.ids)
    assert len(text) == 3
    assert text.isdigit()


async def test_several_sequences_count_their_seeds_up(run: Run) -> None:
    """Sequence i of a seeded request is the sequence of a request with seed + i."""
    several = await run.results(SUM, n=3, seed=40, max_tokens=10)
    for index, result in enumerate(several):
        (alone,) = await run.results(SUM, seed=40 + index, max_tokens=10)
        assert result.ids == alone.ids


async def test_logprob_rows_start_with_the_sampled_token(run: Run) -> None:
    """Each row has the sampled token and then the likeliest ones in order, even beside a request with wider rows."""
    wide = await run.start(SUM, temperature=0, logprobs=5, max_tokens=6)
    narrow = await run.start(SUM, temperature=0, logprobs=1, max_tokens=6)
    for sequence, width in ((wide[0], 6), (narrow[0], 2)):
        result = await run.until(sequence)
        assert {rows.width for rows in result.logprobs} == {width}
        ids = [token for rows in result.logprobs for token in rows.token_ids]
        assert ids[::width] == result.ids
        assert ids[1::width] == result.ids  # greedy: the sampled token is the likeliest
        assert {rank for rows in result.logprobs for rank in rows.sampled_ranks} == {1}


async def test_prompt_logprobs_cover_the_prompt(run: Run) -> None:
    """There is one row per prompt token after the first, and it starts with that token."""
    prompt = run.chat(SUM)
    (result,) = await run.results(prompt, temperature=0, prompt_logprobs=2, max_tokens=1)
    assert result.prefill is not None
    rows = result.prefill.prompt_logprobs
    assert (rows.width, list(rows.token_ids[:: rows.width])) == (3, prompt[1:])
    assert len(rows.sampled_ranks) == len(prompt) - 1


async def test_cached_prompt_tokens_are_reported(run: Run) -> None:
    """Most of a repeated long prompt is reported as cached; with another salt none is."""
    prompt = [100 + i % 400 for i in range(600)]
    await run.results(prompt, max_tokens=1)
    (again,) = await run.results(prompt, max_tokens=1)
    assert again.prefill is not None
    assert again.prefill.cached_tokens >= 256
    salted = pb.Submit(request_id="s", slots=[0], prompt_token_ids=prompt, cache_salt="another")
    salted.sampling_params.max_tokens = 1
    sequences = run.sequences(1)
    await run.engine.submit(salted, sequences)
    prefill = (await run.until(sequences[0])).prefill
    assert prefill is not None
    assert prefill.cached_tokens == 0
    assert prefill.created_cache_tokens >= 256


def _metrics(engine: "VllmEngine") -> dict[str, float]:
    """Return the engine's metrics, summed over all labels but the finish reason."""
    values: dict[str, float] = {}
    for family in engine.metrics():
        for sample in family.samples:
            assert sample.labels.get("model_name", TINY_MODEL_NAME) == TINY_MODEL_NAME
            name = sample.name + sample.labels.get("finished_reason", "")
            values[name] = values.get(name, 0.0) + sample.value
    return values


async def test_metrics_have_vllms_names_and_numbers(run: Run, request: pytest.FixtureRequest) -> None:
    """Tokens, times and finishes are counted as in vLLM; an engine whose last request was aborted is idle."""
    before = _metrics(run.engine)
    await run.results(list(range(100, 130)), n=2, temperature=0.5, seed=1, ignore_eos=True, max_tokens=5)
    after = _metrics(run.engine)
    gained = {name: value - before.get(name, 0.0) for name, value in after.items()}
    assert gained["vllm:prompt_tokens_total"] == 60
    assert gained["vllm:generation_tokens_total"] == 10
    assert gained["vllm:request_success_totallength"] == 2
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time", "request_decode_time"):
        assert gained[f"vllm:{name}_seconds_count"] == 2
    assert gained["vllm:request_generation_tokens_sum"] == 10
    assert gained["vllm:inter_token_latency_seconds_count"] >= 4
    (sequence,) = await run.start(SUM, ignore_eos=True, max_tokens=1500)
    await run.until(sequence, tokens=3)
    assert _metrics(run.engine)["vllm:num_requests_running"] == 1
    await run.engine.abort([sequence])
    await run.until(sequence)
    if request.node.callspec.params["run"]:
        await until(lambda: _metrics(run.engine)["vllm:num_requests_running"] == 0)


@pytest.mark.parametrize(
    ("prompt", "n", "params", "param"),
    [
        ([1, 10**6], 1, {}, None),
        ([], 1, {}, None),
        ([5] * MAX_MODEL_LEN, 1, {}, None),
        ([5], 2, {"temperature": 0}, None),
        ([5], 1, {"temperature": 9}, "temperature"),
        ([5], 1, {"stop_token_ids": [10**6]}, "stop_token_ids"),
        ([5], 1, {"logit_bias": {10**6: 1.0}}, "logit_bias"),
        ([5], 1, {"allowed_token_ids": [10**6]}, "allowed_token_ids"),
        ([5], 1, {"logprobs": 10**6}, "logprobs"),
        ([5], 1, {"max_tokens": 0}, "max_tokens"),
        ([5], 1, {"structured_outputs": pb.StructuredOutputs(regex="[")}, None),
        ([5], 1, {"structured_outputs": pb.StructuredOutputs(json_schema="{")}, None),
        ([5], 1, {"extra_args_json": "{"}, "extra_args"),
    ],
)
async def test_an_invalid_request_is_refused(
    run: Run, prompt: list[int], n: int, params: dict[str, Any], param: str | None
) -> None:
    """Requests that vLLM would reject, or that would kill it, are rejected with the field's name."""
    with pytest.raises(InvalidRequest) as refused:
        await run.start(prompt, n, **params)
    assert refused.value.param == param
    (result,) = await run.results(SUM, temperature=0, max_tokens=2)
    assert len(result.ids) == 2


CIRCLE = {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}
STUCK: list[tuple[str, Any]] = [
    ("json_schema", {"oneOf": [{"$ref": "#"}]}),
    ("json_schema", {"$ref": "#/"}),
    ("json_schema", {"$ref": "#/$defs/a%62", "$defs": {"ab": {"$ref": "#/$defs/a%62"}}}),
    ("json_schema", {"$ref": "#/$defs/a", "$defs": CIRCLE}),
    ("json_schema", {"anyOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/a"}], "$defs": CIRCLE}),
    ("grammar", "root ::= root"),
    ("grammar", "root ::= a\na ::= root"),
    ("regex", r"[^\x00-\U0010ffff]"),
]


@pytest.mark.parametrize(("kind", "grammar"), STUCK)
async def test_a_grammar_that_allows_nothing_is_refused(run: Run, kind: str, grammar: Any) -> None:
    """It allows no first token, or cannot be compiled: an invalid request, with the field's name."""
    text = json.dumps(grammar) if kind == "json_schema" else grammar
    skip_if_clamped(text)
    param = f"structured_outputs.{kind.removesuffix('_schema')}"
    wire: Any = {kind: text}
    with pytest.raises(InvalidRequest, match=f"The value of {param} (allows no output|cannot be compiled)") as refused:
        await run.start(SUM, structured_outputs=pb.StructuredOutputs(**wire))
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("grammar", "ids"),
    [
        (pb.StructuredOutputs(grammar='root ::= ""'), [EOS]),
        (pb.StructuredOutputs(grammar='root ::= "a" | b\nb ::= b'), [81, EOS]),
        (pb.StructuredOutputs(grammar="root ::= Token(500)"), [500, EOS]),
        (pb.StructuredOutputs(regex=""), [EOS]),
        (pb.StructuredOutputs(choice=pb.Choices(values=[""])), [EOS]),
    ],
)
async def test_a_grammar_that_allows_little_is_followed(
    run: Run, grammar: pb.StructuredOutputs, ids: list[int]
) -> None:
    """EOS alone, one satisfiable alternative or a token id is enough."""
    (result,) = await run.results(SUM, temperature=0, structured_outputs=grammar)
    assert result.ids == ids


@pytest.mark.parametrize(
    "grammar",
    [pb.StructuredOutputs(grammar='root ::= "x" a\na ::= a'), pb.StructuredOutputs(regex=r"ab[^\x00-\U0010ffff]")],
)
async def test_a_grammar_that_gets_stuck_ends_its_sequence(run: Run, grammar: pb.StructuredOutputs) -> None:
    """A dead end during generation fails only this sequence, with a reason."""
    skip_if_clamped(grammar.regex)
    (result,) = await run.results(SUM, temperature=0, structured_outputs=grammar)
    assert result.finish is not None
    assert result.finish.reason == pb.FINISH_REASON_ERROR
    assert result.finish.error_message.startswith("The grammar allows no further token")
    (later,) = await run.results(SUM, temperature=0, max_tokens=2)
    assert len(later.ids) == 2


async def test_a_seed_survives_a_prompt_that_takes_several_steps(run: Run) -> None:
    """The prompt is longer than a step; in a second run it is cached, and the seed's tokens are the same."""
    prompt = run.chat("Tell me of the sea and of the wind. " * 100)
    assert 900 < len(prompt) < MAX_MODEL_LEN
    (first,) = await run.results(prompt, seed=5, temperature=1.0, max_tokens=12, ignore_eos=True)
    (second,) = await run.results(prompt, seed=5, temperature=1.0, max_tokens=12, ignore_eos=True)

    assert first.prefill is not None
    assert second.prefill is not None
    assert first.prefill.cached_tokens < 128 < second.prefill.cached_tokens
    assert first.ids == second.ids


async def test_the_engines_capabilities_are_reported(run: Run) -> None:
    """On a CPU in float32: safe seeds, noise from generators, batch invariance; grammars of every kind."""
    found = run.engine.capabilities()
    assert (found.seeds, found.positional_seeds, found.batch_invariant) == (True, False, True)
    assert found.seeded_noise.startswith("cpu ")
    transfers = ["kv_transfer_params", "lora"]
    assert list(found.unsupported) == sorted([*sampling.unsupported_params(), *transfers])
    assert "sleep" in found.unsupported_operations


async def test_kinds_of_grammars_that_a_backend_lacks_are_announced(run: Run) -> None:
    """vLLM itself is asked; whether the backend's package is installed or not."""
    config = run.engine.llm.vllm_config
    chosen = copy(config)
    chosen.structured_outputs_config = copy(config.structured_outputs_config)
    chosen.structured_outputs_config.backend = "lm-format-enforcer"

    found = unsupported.unsupported(chosen, run.engine.llm.get_tokenizer(), seeds=True, prompt_scores=True)

    assert "structured_outputs.grammar" in found
    assert "structured_outputs.regex" not in found


async def test_seeds_are_refused_if_they_may_kill_the_engine(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the field's name; a greedy request draws nothing, so its seed is safe."""
    monkeypatch.setattr(run.engine, "_capabilities", pb.EngineCapabilities())
    with pytest.raises(InvalidRequest) as refused:
        await run.start(SUM, seed=5, temperature=1.0)
    assert refused.value.param == "seed"
    (result,) = await run.results(SUM, seed=5, temperature=0, max_tokens=2)
    assert len(result.ids) == 2


async def test_an_adapter_without_lora_support_is_refused(run: Run) -> None:
    """Only the request with a LoRA adapter fails if the engine has no LoRA support."""
    wire = pb.Submit(request_id="r", slots=[0], prompt_token_ids=[5], lora=pb.LoraAdapter(name="a", id=1, path="/a"))
    with pytest.raises(Unsupported, match="--enable-lora"):
        await run.engine.submit(wire, run.sequences(1))


async def test_an_abort_ends_a_running_sequence_once(run: Run) -> None:
    """An abort gives one ABORT finish, no token after it, and frees the engine's capacity."""
    (sequence,) = await run.start(SUM, ignore_eos=True, max_tokens=1500)
    await run.until(sequence, tokens=3)
    await run.engine.abort([sequence, sequence])
    result = await run.until(sequence)
    assert result.finish == pb.Finish(reason=pb.FINISH_REASON_ABORT)
    await run.engine.abort([sequence])
    (later,) = await run.results(SUM, temperature=0, max_tokens=3)
    assert len(later.ids) == 3
    assert run.load == pb.Load()


async def test_one_of_several_can_be_aborted(run: Run) -> None:
    """Aborting one sequence of a request leaves the others running."""
    first, second = await run.start(SUM, n=2, seed=1, ignore_eos=True, max_tokens=30)
    await run.until(first, tokens=2)
    await run.engine.abort([first])
    assert (await run.until(first)).finish == pb.Finish(reason=pb.FINISH_REASON_ABORT)
    assert len((await run.until(second)).ids) == 30


async def test_an_abort_during_submit_takes_effect(run: Run) -> None:
    """A sequence that is aborted while its grammar is being checked ends as soon as it has started."""
    sequences = run.sequences(1)
    wire = pb.Submit(request_id="r", slots=[0], prompt_token_ids=run.chat(SUM))
    wire.sampling_params.structured_outputs.regex = "[a-z]{200}"
    vllm_request = asyncio.create_task(run.engine.submit(wire, sequences))
    await asyncio.sleep(0)
    await run.engine.abort(sequences)
    await vllm_request
    assert (await run.until(sequences[0])).finish == pb.Finish(reason=pb.FINISH_REASON_ABORT)


async def test_a_full_queue_refuses_a_whole_request(run: Run) -> None:
    """Beyond --max-num-queued-reqs no sequence of a request is started."""
    if not has_engine_option("max_num_queued_reqs"):
        pytest.skip("this vLLM does not limit its queue")
    with pytest.raises(Overloaded):
        await run.start(SUM, n=QUEUE_LIMIT + 1, seed=1, max_tokens=5)
    results = await run.results(SUM, n=QUEUE_LIMIT, seed=1, max_tokens=5, ignore_eos=True)
    assert [len(result.ids) for result in results] == [5] * QUEUE_LIMIT


async def test_a_paused_engine_still_aborts(run: Run) -> None:
    """While the engine is paused, requests wait, and an abort ends one at once although the engine does not step."""
    await run.engine.pause(PauseMode.KEEP, clear_cache=False)
    assert await run.engine.is_paused()
    (kept,) = await run.start(SUM, temperature=0, max_tokens=2)
    (aborted,) = await run.start(SUM, temperature=0, max_tokens=2)
    await run.engine.abort([aborted])
    assert (await run.until(aborted)).finish == pb.Finish(reason=pb.FINISH_REASON_ABORT)
    assert run.result(kept).ids == []
    await run.engine.resume()
    assert len((await run.until(kept)).ids) == 2


async def test_a_pause_with_abort_ends_running_sequences(run: Run) -> None:
    """A pause in mode ABORT ends running sequences, each once, and a resume accepts new ones."""
    (sequence,) = await run.start(SUM, ignore_eos=True, max_tokens=1500)
    await run.until(sequence, tokens=1)
    await run.engine.pause(PauseMode.ABORT, clear_cache=True)
    finish = (await run.until(sequence)).finish
    assert finish is not None
    assert finish.reason == pb.FINISH_REASON_ABORT
    await run.engine.resume()
    (result,) = await run.results(SUM, temperature=0, max_tokens=2)
    assert len(result.ids) == 2


async def test_steps_carry_the_weight_version(run: Run) -> None:
    """Once the weights have a label, steps carry it."""
    await run.engine.set_weight_version("step-7")
    assert await run.engine.get_weight_version() == "step-7"
    await run.results(SUM, temperature=0, max_tokens=2)
    (result,) = await run.results(SUM, temperature=0, max_tokens=2)
    assert "step-7" in result.weight_versions


async def test_an_unsupported_operation_names_the_remedy(run: Run) -> None:
    """Operations that need a vLLM argument name it; failures inside the engine are TokenwireErrors."""
    assert await run.engine.list_loras() == []
    assert await run.engine.reset_cache(reset_running_requests=False, reset_external=False)
    assert not await run.engine.is_sleeping()
    with pytest.raises(Unsupported, match="--enable-sleep-mode"):
        await run.engine.sleep(1, PauseMode.ABORT)
    with pytest.raises(Unsupported, match="--enable-lora"):
        await run.engine.load_lora(pb.LoraAdapter(name="a", id=1, path="/a"))
    with pytest.raises(EngineFailed, match="no_such_method"):
        await run.engine.collective_rpc("no_such_method", 5.0, [], {})
    with pytest.raises(Unsupported, match="--weight-transfer-config"):
        await run.engine.update_weights("start", {})


async def test_the_model_is_described(run: Run) -> None:
    """The description has what a coordinator needs to validate requests."""
    model = run.engine.describe()
    assert list(model.names) == [TINY_MODEL_NAME]
    assert model.root.endswith(TINY_MODEL_NAME)
    assert (model.max_model_len, model.max_token_id) == (MAX_MODEL_LEN, 49151)
    assert model.engine == f"vllm {installed_vllm().partition('+')[0]}"
    assert json.loads(model.default_sampling_params_json) == {"temperature": 0.2, "top_p": 0.9}
    assert model.max_num_seqs > 0
    assert model.weights_digest == weights_digest(Path(model.root))
    assert (model.dtype, model.quantization) == (str(run.engine.llm.model_config.dtype).removeprefix("torch."), "none")


async def test_the_tokenizer_can_be_rebuilt_from_its_files(run: Run) -> None:
    """The files hold the tokenizer that vLLM loaded, its special tokens and its chat template."""
    files = run.engine.tokenizer_files()
    config = json.loads(files["tokenizer_config.json"])
    assert (config["bos_token"], config["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert "add_generation_prompt" in config["chat_template"]
    loaded = run.engine.llm.get_tokenizer()
    for text in ("Grüße, 世界 🙂 1234", "<|im_start|>user\nhi<|im_end|>", "  two  spaces\n\n\ttab"):
        assert run.tokenizer.encode(text).ids == loaded.encode(text)
    assert json.loads(files["tokenizer.json"])["truncation"] is None


async def test_a_killed_engine_fails_every_sequence(engine: "VllmEngine") -> None:
    """If the core is killed while idle, waiting sequences get an ERROR finish and the steps end with an error.

    None of the core's child processes survives.
    This is the last test of the engine, which it kills.
    """
    await switch_driver(engine, use_core_driver=True)
    run = Run(engine)
    await run.engine.pause(PauseMode.KEEP, clear_cache=False)
    (sequence,) = await run.start(SUM, max_tokens=2)
    (core,) = [each for each in psutil.Process().children(recursive=True) if "EngineCore" in each.name()]
    descendants = core.children(recursive=True)
    core.kill()
    finish = (await run.until(sequence)).finish
    assert finish is not None
    assert (finish.reason, finish.error_message) == (pb.FINISH_REASON_ERROR, "The engine died; see its log.")
    with pytest.raises(EngineFailed, match="died"):
        await asyncio.wait_for(run.consumer, 30)
    with pytest.raises(Unavailable):
        await run.start(SUM)
    with pytest.raises(TokenwireError):
        await run.engine.is_paused()
    assert descendants
    assert not (await asyncio.to_thread(psutil.wait_procs, descendants, 60))[1]


async def test_an_engine_that_never_started_can_be_stopped() -> None:
    """Stopping is safe before the start, and twice."""
    engine = engines.VllmEngine("a-model", [], [])
    await engine.stop()
    await engine.stop()
    with pytest.raises(Unavailable):
        engine.describe()
