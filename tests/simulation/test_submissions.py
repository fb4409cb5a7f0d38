"""A request that is sent again asks for the same, but for what follows from the part of the reply that it continues."""

import pytest

from tests.simulation.inside import run_inside

pytestmark = pytest.mark.slow

_LEDGER = """
    from tests.simulation.submissions import SubmissionLedger
    from tokenwire.v1 import inference_pb2 as pb

    def submit(prompt, after_ms=None, salt="salt", lora=0, request_id="r0", **params):
        plain = {"temperature": 0.7, "logit_bias": {5: -100.0}, "max_tokens": 20, "min_tokens": 2, "seed": 9}
        return pb.Submit(
            request_id=request_id, prompt_token_ids=prompt, resumed_after_ms=after_ms, cache_salt=salt,
            lora=pb.LoraAdapter(id=lora), sampling_params=pb.SamplingParams(**(plain | params)),
        )

    def problem(other, place=0, first=None):
        ledger = SubmissionLedger()
        assert not ledger.problem(first or submit([1, 2]), 0)
        return ledger.problem(other, place)
"""


def test_a_continuation_and_a_replay_have_the_parameters_of_the_first_submission() -> None:
    """What is in the prompt is neither generated nor waited for again, and a later choice has its own seed."""
    run_inside(
        _LEDGER
        + """
    assert not problem(submit([1, 2, 7], 5, max_tokens=19, min_tokens=1))
    assert not problem(submit([1, 2, 7, 7, 7], 5, max_tokens=17, min_tokens=0))
    assert not problem(submit([1, 2], 5, seed=11), place=2)
    assert not problem(submit([1, 2], 5, seed=11), place=None)
    assert not problem(submit([3], request_id="r1", temperature=0.1))
    """
    )


def test_whatever_else_differs_is_named() -> None:
    """A parameter that is lost, changed or added, and a length or seed that does not follow."""
    run_inside(
        _LEDGER
        + """
    wrong = {
        "temperature": submit([1, 2], 5, temperature=None),
        "logit_bias": submit([1, 2], 5, logit_bias={}),
        "top_p": submit([1, 2], 5, top_p=0.5),
        "cache_salt": submit([1, 2], 5, salt=None),
        "lora": submit([1, 2], 5, lora=1),
        "max_tokens": submit([1, 2, 7], 5, min_tokens=1),
        "min_tokens": submit([1, 2, 7], 5, max_tokens=19),
        "seed": submit([1, 2], 5, seed=10),
        "prompt": submit([2, 2], 5),
    }
    for name, other in wrong.items():
        assert problem(other) == f"r0 was sent again with another {name}", name
    assert problem(submit([1, 2], 5, seed=None)).endswith("another seed")
    """
    )


def test_log_probabilities_of_the_prompt_are_asked_for_once_or_again() -> None:
    """They are left out once the client has them, and never asked for otherwise."""
    run_inside(
        _LEDGER
        + """
    scored = submit([1, 2], prompt_logprobs=2)
    assert not problem(submit([1, 2], 5), first=scored)
    assert not problem(submit([1, 2], 5, prompt_logprobs=2), first=scored)
    assert problem(submit([1, 2], 5, prompt_logprobs=1), first=scored).endswith("prompt_logprobs")
    """
    )


def test_what_was_resumed_counts_for_each_parameter_that_it_has() -> None:
    """The parts of a request that were queued are no resumptions."""
    run_inside(
        _LEDGER
        + """
    ledger = SubmissionLedger()
    for after_ms in (None, None, 5):
        ledger.problem(submit([1, 2], after_ms), 0)
    assert ledger.reached["resubmitted with temperature"] == 1
    """
    )


def test_a_resumption_that_loses_a_parameter_is_found() -> None:
    """Simulated engines would generate the same tokens without it."""
    run_inside(
        """
        from tokenwire.coordinator.fleet.failover import recovery
        from tests.simulation.run import run_script
        from tests.simulation.script import generate_script

        copy = recovery._copy

        def copy_without(params):
            copied = copy(params)
            copied.ClearField("temperature")
            return copied

        recovery._copy = copy_without
        found = (violation for seed in range(60) for violation in run_script(generate_script(seed)).violations)
        assert any("was sent again with another temperature" in each for each in found)
        """
    )
