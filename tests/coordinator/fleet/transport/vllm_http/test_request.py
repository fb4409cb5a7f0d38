"""Submits become requests of a plain vLLM server."""

from typing import Any

import pytest

from tokenwire.coordinator.fleet.transport.vllm_http.request import body_of, headers_of, needs_full_response
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb


def submit_with(**sampling: Any) -> pb.Submit:
    """Return a request with these parameters."""
    return pb.Submit(prompt_token_ids=[1, 2], sampling_params=pb.SamplingParams(**sampling))


def sampling_of(**sampling: Any) -> dict[str, Any]:
    """Return the parameters that the server gets, for each sequence."""
    params: dict[str, Any] = body_of(submit_with(**sampling), "m")["sampling_params"]
    return params


def test_only_what_is_set_is_sent() -> None:
    """Everything else is the server's default."""
    assert body_of(submit_with(), "m") == {
        "model": "m",
        "sampling_params": {"n": 1, "detokenize": False},
        "stream": True,
        "priority": 0,
    }
    assert headers_of(submit_with()) == {}


def test_a_request_for_an_adapter_names_it() -> None:
    """Such servers list adapters as models."""
    wanted = submit_with()
    wanted.lora.name = "red"
    assert body_of(wanted, "m")["model"] == "red"


def test_fields_beside_the_sampling_parameters_are_sent() -> None:
    """In the body, or in the headers that vLLM's frontend reads."""
    wanted = submit_with(ec_transfer_params_json='{"a": 1}')
    wanted.cache_salt, wanted.reasoning_ended, wanted.reasoning_parser_kwargs_json = "salt", False, '{"b": 2}'
    wanted.session_id, wanted.data_parallel_rank, wanted.trace_headers["traceparent"] = "s", 0, "00-1"

    body = body_of(wanted, "m")

    assert (body["cache_salt"], body["reasoning_ended"], body["reasoning_parser_kwargs"]) == ("salt", False, {"b": 2})
    assert body["ec_transfer_params"] == {"a": 1}
    assert headers_of(wanted) == {"X-Session-ID": "s", "X-data-parallel-rank": "0", "traceparent": "00-1"}


def test_sampling_parameters_have_vllms_names_and_shapes() -> None:
    """Keys of JSON are strings; one more log-probability is requested; seeds are the sequences' own."""
    given = sampling_of(max_tokens=5, seed=40, logprobs=3, logit_bias={7: 1.5}, extra_args_json='{"x": 1}')

    assert (given["max_tokens"], given["logprobs"], "seed" in given) == (5, 4, False)
    assert (given["logit_bias"], given["extra_args"]) == ({"7": 1.5}, {"x": 1})
    assert [sampling_of(logprobs=count)["logprobs"] for count in (-1, 0, 19, 20)] == [-1, 0, 20, 20]


@pytest.mark.parametrize(("sampling", "whole"), [({}, False), ({"prompt_logprobs": 0}, True), ({"logprobs": 2}, False)])
def test_what_streams_omit_needs_full_response(sampling: dict[str, Any], whole: bool) -> None:
    """Scores of the prompt, and parameters of a KV transfer."""
    assert needs_full_response(submit_with(**sampling)) is whole
    assert body_of(submit_with(**sampling), "m")["stream"] is not whole
    assert needs_full_response(submit_with(kv_transfer_params_json="{}"))


def test_unsupported_parameters_are_rejected_by_name() -> None:
    """The server would ignore them."""
    with pytest.raises(InvalidRequest, match="not supported by a plain vLLM server") as refused:
        sampling_of(prompt_logprob_start=3)
    assert refused.value.param == "prompt_logprob_start"
    assert "prompt_logprob_start" not in sampling_of(prompt_logprob_start=0)  # the default, which needs no support
