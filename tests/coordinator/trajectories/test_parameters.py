"""Parameters are named as a client would write them."""

from tokenwire.coordinator.trajectories.parameters import NamedParameters
from tokenwire.v1 import inference_pb2 as pb


def test_parameters_have_their_own_names_and_shortest_numbers() -> None:
    """The same each time, and others as others."""
    parameters = NamedParameters()
    named = [parameters.of(pb.SamplingParams(temperature=each, max_tokens=9), 1) for each in (0.7, 0.7, 0.5)]

    assert named == [{"temperature": each, "max_tokens": 9} for each in (0.7, 0.7, 0.5)]
    assert len(parameters) == 2


def test_those_of_many_requests_take_little_memory() -> None:
    """The oldest ones are forgotten, and large ones are never kept."""
    parameters = NamedParameters()
    for seed in range(200):
        assert parameters.of(pb.SamplingParams(seed=seed), 1) == {"seed": seed}
    kept = len(parameters)
    parameters.of(pb.SamplingParams(allowed_token_ids=range(2000)), 1)

    assert kept == len(parameters) == 64


def test_only_numbers_of_large_ones_are_named() -> None:
    """Counted for each prompt of a request, which are stored with each of them."""
    sampling = pb.SamplingParams(temperature=0.5, stop_token_ids=range(100))

    few, many = (NamedParameters().of(sampling, prompts) for prompts in (2, 20_000))

    assert few.keys() == {"temperature", "stop_token_ids"}
    assert many == {"temperature": 0.5}
