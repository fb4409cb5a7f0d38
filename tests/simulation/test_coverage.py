"""Coverage counts what happened, and a long run that never met a case fails."""

import pytest

from tests.simulation.inside import run_inside

pytestmark = pytest.mark.slow

_RUN = """
    from dataclasses import replace
    from tests.simulation.run import run_script
    from tests.simulation.script import Script, ScriptedEvent, generate_script

    plain = generate_script(0)
    config = dict(plain.config, workers=2, coordinators=1, keys=[], seconds=6.0, adapters=[], other_weights=[])
    config["batch_variant"] = config["generators"] = []
    config["engine"] = dict(config["engine"], max_num_seqs=4, max_queue=0, kv_tokens=None, eos_rate=0.0)
    config["engine"]["prefill_tokens_per_s"] = 0
    request = next(event for event in plain.events if event.kind == "request").args | {
        "coordinator": 0, "route": "completions", "n": 1, "max_tokens": 120, "key": None, "model": None,
        "leave_s": None, "read_delay_s": 0.0, "stop": None, "stream": True, "sampling": "greedy", "follows": None,
        "ids": True, "min_tokens": 0, "stop_token_ids": None, "prompt_logprobs": None,
    }
    hit = {"worker": 0, "coordinator": 0, "length": 3.0, "draw": 0.9, "adapter": "red", "subset": [0]}

    def reached(*events):
        script = Script(0, config, tuple(ScriptedEvent(at, kind, args) for at, kind, args in events))
        result = run_script(script)
        assert not result.violations, result.violations
        return result.reached
"""


def test_an_event_that_finds_nothing_to_hit_is_not_counted() -> None:
    """A worker dies once, however often it is killed."""
    run_inside(
        _RUN
        + """
    found = reached((1.0, "kill", hit), (2.0, "kill", hit), (2.5, "crash", hit))
    assert (found["event kill"], found["event crash"]) == (1, 0)
    assert found["worker killed: idle"] == 1
    """
    )


def test_a_kill_counts_for_the_phase_of_each_stream_that_it_hits() -> None:
    """And what was lost counts for how it goes on."""
    run_inside(
        _RUN
        + """
    requests = [(1.0, "request", request | {"id": f"r{number}"}) for number in range(4)]
    both = [(1.3, "kill", hit | {"worker": number}) for number in range(2)]
    found = reached(*requests, *both)
    assert found["worker killed: mid-stream"] == 4
    assert found["resumed after a lost session"] >= 4
    how = sum(found[f"resumed {each}"] for each in ("from its tokens", "by a replay", "from the beginning"))
    assert how == found["resumed after a lost session"]
    assert found["completed: length"] == 4
    found = reached(*requests, (1.3, "kill_coordinator", hit | {"draw": 0.301}))
    assert found["coordinator killed: mid-stream"] == 4
    assert found["failed: connection lost"] == 4
    """
    )


def test_operations_go_through_the_routes_with_their_keys() -> None:
    """Without the admin key nothing happens."""
    run_inside(
        _RUN
        + """
    label = (1.0, "label_weights", hit)
    assert reached(label)["event label_weights"] == 1

    from tests.simulation import operator
    operator.ADMIN_KEY = "guess"
    try:
        reached(label)
    except AssertionError as error:
        assert "is answered with 401" in str(error)
    else:
        raise AssertionError("an operation without the admin key")
    """
    )


def test_a_long_run_that_never_met_a_case_fails_and_names_it() -> None:
    """A short one need not meet everything."""
    run_inside(
        """
        import contextlib, io
        from tests.simulation.__main__ import misses_cases
        from tests.simulation.coverage import DEMANDED, LONG_RUN
        from tests.simulation.runner import Campaign

        campaign = Campaign(runs=LONG_RUN)
        campaign.reached_in.update(DEMANDED)
        assert not misses_cases(campaign)
        del campaign.reached_in["stopped as poison"]
        told = io.StringIO()
        with contextlib.redirect_stderr(told):
            assert misses_cases(campaign)
        assert told.getvalue() == f"{LONG_RUN} runs, and never: stopped as poison\\n"
        campaign.runs -= 1
        assert not misses_cases(campaign)
        """
    )
