"""The seeds of sequences: vLLM's, except where vLLM has none."""

from tokenwire.protocol.seeds import NO_SEED, is_greedy, sequence_seed
from tokenwire.v1 import inference_pb2 as pb


def test_sequences_count_up_from_their_requests_seed() -> None:
    """As in vLLM, whatever the sign."""
    assert [sequence_seed(7, index) for index in range(3)] == [7, 8, 9]
    assert [sequence_seed(-9, index) for index in range(3)] == [-9, -8, -7]


def test_sampling_is_greedy_below_a_temperature_that_is_given() -> None:
    """As in vLLM; an absent one is the model's default."""
    given = [pb.SamplingParams(temperature=value) for value in (0.0, 0.9e-5, 2e-5, 1.0)]

    assert [is_greedy(params) for params in given] == [True, True, False, False]
    assert not is_greedy(pb.SamplingParams())


def test_every_sequence_of_a_seeded_request_has_a_seed() -> None:
    """Counting skips vLLM's value for none; the sequences around it keep vLLM's seeds."""
    seeds = [sequence_seed(-3, index) for index in range(5)]

    assert [seeds[0], seeds[1], seeds[3], seeds[4]] == [-3, -2, 0, 1]
    assert NO_SEED not in seeds
    assert len(set(seeds)) == 5
    assert all(-(2**63) <= seed < 2**63 for seed in seeds)


def test_a_part_of_a_request_counts_on_from_the_seed_of_its_first_sequence() -> None:
    """Also where that one is in place of vLLM's value for none."""
    for seed in (7, -3, -2):
        whole = [sequence_seed(seed, index) for index in range(6)]
        for start in range(6):
            assert [sequence_seed(whole[start], index) for index in range(6 - start)] == whole[start:]


def test_seeds_of_a_request_differ_in_their_low_32_bits() -> None:
    """torch's generator on CPUs ignores the high ones: two choices would be equal."""
    for first in range(-40, 3):
        seeds = [sequence_seed(first, index) for index in range(64)]
        assert len({seed % 2**32 for seed in seeds}) == 64
