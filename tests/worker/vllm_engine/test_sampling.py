"""Sampling parameters of the protocol mean exactly what vLLM's mean."""

import json
from typing import Any

import pytest

from tests.lazily import Lazily
from tests.worker.vllm_engine.older import skip_without_parameters
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

vllm = Lazily("vllm")
exceptions = Lazily("vllm.exceptions")
msgspec = Lazily("msgspec")
sampling = Lazily("tokenwire.worker.vllm_engine.sampling")

pytestmark = pytest.mark.engine

# Fields of vLLM's parameters that concern text, which never reaches a worker, or that vLLM sets itself.
_NOT_ON_THE_WIRE = {
    "stop",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "detokenize",
    "flat_logprobs",
    "output_kind",
    "stream_interval",
    "skip_clone",
    "output_text_buffer_length",
    "n",
}


def test_absent_fields_have_vllms_defaults_and_no_token_limit() -> None:
    """Empty parameters are vLLM's defaults, except that without max_tokens the context is the limit."""
    built = sampling.to_vllm(pb.SamplingParams(), 1)
    default = vllm.SamplingParams(max_tokens=None)
    for name in default.__struct_fields__:
        if name not in _NOT_ON_THE_WIRE:
            assert getattr(built, name) == getattr(default, name), name


def test_every_field_of_vllm_is_on_the_wire() -> None:
    """Each public field of vLLM's parameters has a field on the wire, under its own name or in JSON."""
    on_the_wire = {field.name.removesuffix("_json") for field in pb.SamplingParams.DESCRIPTOR.fields}
    public = {name for name in vllm.SamplingParams.__struct_fields__ if not name.startswith("_")}
    assert public - _NOT_ON_THE_WIRE <= on_the_wire


def test_the_engine_returns_deltas_of_ids() -> None:
    """For any request, the engine neither detokenizes nor accumulates."""
    built = sampling.to_vllm(pb.SamplingParams(), 1)
    assert (built.detokenize, built.output_kind.name, built.skip_clone, built.stop) == (False, "DELTA", True, [])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("presence_penalty", -1.5),
        ("frequency_penalty", 0.1),
        ("repetition_penalty", 1.1),
        ("temperature", 0.7),
        ("top_p", 0.9),
        ("top_k", 40),
        ("min_p", 0.05),
        ("seed", -(2**62)),
        ("ignore_eos", True),
        ("max_tokens", 7),
        ("min_tokens", 3),
        ("logprobs", -1),
        ("prompt_logprobs", 5),
        ("prompt_logprob_start", 2),
        ("thinking_token_budget", 100),
        ("watermarking", False),
        ("skip_reading_prefix_cache", True),
        ("routed_experts_prompt_start", 4),
        ("stop_token_ids", [5, 6]),
        ("logprob_token_ids", [7, 8]),
        ("allowed_token_ids", [1, 2, 3]),
        ("bad_words", ["foo", "bar"]),
        ("trace_decode_token_ids", [9, 9]),
    ],
)
def test_a_field_arrives_unchanged(name: str, value: Any) -> None:
    """A field that is set has the same value on the engine's side."""
    skip_without_parameters(name)
    given: dict[str, Any] = {name: value}
    built = sampling.to_vllm(pb.SamplingParams(**given), 1)
    assert getattr(built, name) == value


@pytest.mark.parametrize(("name", "default"), [("temperature", 1.0), ("seed", None), ("ignore_eos", False)])
def test_zero_is_not_absent(name: str, default: object) -> None:
    """A field that is set to zero is sent as zero, not as vLLM's default."""
    given: dict[str, Any] = {name: 0}
    built = sampling.to_vllm(pb.SamplingParams(**given), 1)
    assert getattr(built, name) == 0
    assert getattr(sampling.to_vllm(pb.SamplingParams(), 1), name) == default


def test_logit_bias_is_clamped_as_vllm_clamps_it() -> None:
    """Biases beyond 100 count as 100."""
    assert sampling.to_vllm(pb.SamplingParams(logit_bias={3: -250.0, 4: 1.5}), 1).logit_bias == {3: -100.0, 4: 1.5}


def test_prompt_ids_to_score_arrive_as_rows() -> None:
    """Ids to score per prompt row stay nested, padding included."""
    skip_without_parameters("prompt_logprob_token_ids")
    rows = [pb.TokenIds(ids=[1, 2]), pb.TokenIds(ids=[3, -1])]
    built = sampling.to_vllm(pb.SamplingParams(prompt_logprob_token_ids=rows), 1)
    assert built.prompt_logprob_token_ids == [[1, 2], [3, -1]]


def test_two_kinds_of_prompt_logprobs_are_refused() -> None:
    """A prompt has one matrix of rows: a request for two raises an error with the field's name."""
    wire = pb.SamplingParams(prompt_logprob_token_ids=[pb.TokenIds(ids=[1])], prompt_logprobs=1)
    with pytest.raises(InvalidRequest) as refused:
        sampling.to_vllm(wire, 1)
    assert refused.value.param == "prompt_logprob_token_ids"


@pytest.mark.parametrize(
    ("wire", "name", "value"),
    [
        (pb.StructuredOutputs(json_schema='{"type":"object"}'), "json", '{"type":"object"}'),
        (pb.StructuredOutputs(regex="[0-9]+"), "regex", "[0-9]+"),
        (pb.StructuredOutputs(choice=pb.Choices(values=["a", "b"])), "choice", ["a", "b"]),
        (pb.StructuredOutputs(grammar='root ::= "x"'), "grammar", 'root ::= "x"'),
        (pb.StructuredOutputs(json_object=True), "json_object", True),
        (pb.StructuredOutputs(structural_tag="{}"), "structural_tag", "{}"),
    ],
)
def test_each_kind_of_grammar_is_converted(wire: pb.StructuredOutputs, name: str, value: object) -> None:
    """Each constraint becomes vLLM's equivalent, with its options."""
    wire.disable_any_whitespace = True
    wire.whitespace_pattern = " ?"
    built = sampling.to_vllm(pb.SamplingParams(structured_outputs=wire), 1).structured_outputs
    assert getattr(built, name) == value
    assert (built.disable_any_whitespace, built.disable_additional_properties, built.whitespace_pattern) == (
        True,
        False,
        " ?",
    )


def test_a_grammar_without_a_constraint_is_refused_by_vllm() -> None:
    """Structured outputs that constrain nothing are vLLM's own error."""
    with pytest.raises((exceptions.VLLMValidationError, ValueError), match="structured outputs constraint"):
        sampling.to_vllm(pb.SamplingParams(structured_outputs=pb.StructuredOutputs()), 1)


def test_repetition_detection_is_converted() -> None:
    """Repetition detection keeps its three numbers."""
    wire = pb.RepetitionDetection(max_pattern_size=8, min_pattern_size=2, min_count=3)
    built = sampling.to_vllm(pb.SamplingParams(repetition_detection=wire), 1).repetition_detection
    assert (built.max_pattern_size, built.min_pattern_size, built.min_count) == (8, 2, 3)


def test_transfer_parameters_join_the_extra_arguments() -> None:
    """KV and encoder-cache transfer parameters reach the engine where its connectors look for them."""
    wire = pb.SamplingParams(
        extra_args_json=json.dumps({"x": 1}),
        kv_transfer_params_json=json.dumps({"do_remote_decode": True}),
        ec_transfer_params_json=json.dumps({"y": 2}),
    )
    extra = sampling.to_vllm(wire, 1).extra_args
    assert extra == {"x": 1, "kv_transfer_params": {"do_remote_decode": True}, "ec_transfer_params": {"y": 2}}


@pytest.mark.parametrize("name", ["extra_args", "kv_transfer_params", "ec_transfer_params"])
@pytest.mark.parametrize("text", ["{", "[1]", "null", "[" * 100_000])
def test_bad_json_is_refused_by_name(name: str, text: str) -> None:
    """Text that is not a JSON object raises an error with the field's name."""
    given: dict[str, Any] = {f"{name}_json": text}
    with pytest.raises(InvalidRequest) as refused:
        sampling.to_vllm(pb.SamplingParams(**given), 1)
    assert refused.value.param == name


def test_greedy_sampling_of_several_is_refused_by_vllm() -> None:
    """Several greedy sequences would be equal: vLLM refuses them."""
    with pytest.raises((exceptions.VLLMValidationError, ValueError), match="greedy"):
        sampling.to_vllm(pb.SamplingParams(temperature=0), 2)


def test_children_count_their_seeds_up() -> None:
    """Sequence i samples with seed + i and n = 1; without a seed it has none; the parent stays as it is."""
    parent = sampling.to_vllm(pb.SamplingParams(seed=10), 3)
    children = [sampling.child_params(parent, index) for index in range(3)]
    assert [(child.n, child.seed) for child in children] == [(1, 10), (1, 11), (1, 12)]
    assert (parent.n, parent.seed) == (3, 10)
    assert sampling.child_params(sampling.to_vllm(pb.SamplingParams(), 2), 1).seed is None


def test_each_sequence_of_a_seeded_request_has_a_seed() -> None:
    """Even if counting up reaches -1, which the engine's process takes for none."""
    params = sampling.to_vllm(pb.SamplingParams(seed=-2), n=2)

    seeds = []
    for index in range(2):
        on_the_way = msgspec.msgpack.encode(sampling.child_params(params, index))
        seeds.append(msgspec.msgpack.decode(on_the_way, type=vllm.SamplingParams).seed)

    assert seeds[0] == -2
    assert seeds[1] is not None


def test_a_parameter_that_this_vllm_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names it, and the version."""
    monkeypatch.setattr("tokenwire.worker.vllm_engine.sampling._KNOWN", frozenset({"seed"}))
    with pytest.raises(InvalidRequest, match=r"vLLM .* does not support top_k") as refused:
        sampling.to_vllm(pb.SamplingParams(seed=1, top_k=2), 1)
    assert refused.value.param == "top_k"


def test_the_parameters_that_a_vllm_lacks_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """This one's are those that it does not know; an older one's those of newer minors, too."""
    fields = set(vllm.SamplingParams.__struct_fields__)
    versioned = {"watermarking", "trace_decode_token_ids", "prompt_logprob_start", "prompt_logprob_token_ids"}
    assert set(sampling.unsupported_params()) == versioned - fields

    monkeypatch.setattr("tokenwire.worker.vllm_engine.sampling._KNOWN", frozenset(fields - {"min_p"}))
    assert set(sampling.unsupported_params()) == (versioned - fields) | {"min_p"}
