"""What judges runs finds what it is there for, and nothing else."""

from tests.simulation.inside import run_inside

_REPLY = """
    from tests.simulation.versions import WeightOrders
    from tokenwire.v1 import control_pb2

    class Reply:
        token_ids = [1, 2, 3]

        def versions_at(self, place):
            return {"old"} if place < 2 else {"new"}

    def spans(*bounds):
        return [{"version": version, "start": start, "end": end} for version, start, end in bounds]

    orders = WeightOrders()
    for epoch, version in ((1, "old"), (2, "new"), (3, "newest")):
        orders.on_control_call(control_pb2.SetWeightVersionRequest(epoch=epoch, weight_version=version))
"""


def test_versions_of_weights_must_cover_a_reply_and_be_those_of_its_tokens() -> None:
    """Neither a gap nor a wrong version passes."""
    run_inside(
        _REPLY
        + """
    assert not orders.problem(Reply(), spans(("old", 0, 2), ("new", 2, 3)))
    for wrong in (None, spans(("old", 0, 2)), spans(("old", 0, 3)), spans(("old", 0, 1), ("old", 1, 2), ("new", 2, 3))):
        assert orders.problem(Reply(), wrong), wrong
    """
    )


def test_versions_of_weights_go_back_only_if_an_operator_did() -> None:
    """An older version may be loaded again, and is newer then."""
    run_inside(
        _REPLY
        + """
    assert not orders._order_problem(["old", "newest"])
    assert orders._order_problem(["newest", "old"])
    assert orders._order_problem(["old", "refused"])
    orders.on_control_call(control_pb2.SetWeightVersionRequest(epoch=4, weight_version="old"))
    assert not orders._order_problem(["newest", "old"])
    """
    )


def test_versions_of_weights_go_back_if_a_worker_missed_them_and_another_operation_ran_at_once() -> None:
    """New weights stay if the other operation has reached a worker that has them; a label may be lost even then."""
    run_inside(
        _REPLY
        + """
    from tokenwire.v1 import inference_pb2

    def announce(epoch, version, weights_epoch=0):
        state = inference_pb2.ServingState(epoch=epoch, weight_version=version, weights_epoch=weights_epoch)
        orders.on_serving_state(state)

    announce(3, "newest")
    assert orders._order_problem(["newest", "new"])
    announce(4, "newest")
    assert orders._order_problem(["newest", "new"])
    announce(4, "new")
    assert not orders._order_problem(["newest", "new"])
    assert orders._order_problem(["newest", "refused"])

    orders.on_control_call(control_pb2.LoadWeightsRequest(epoch=5, path="/etc", weight_version="etc"))
    announce(5, "etc", 5)
    assert orders._order_problem(["etc", "new"])
    announce(6, "new")
    assert not orders._order_problem(["etc", "new"])
    announce(6, "etc", 5)
    assert orders._order_problem(["etc", "new"])
    """
    )


def test_what_is_known_of_an_adapter_ends_with_the_next_operation() -> None:
    """Only a coordinator that has confirmations from all workers is certain."""
    run_inside(
        """
        from tests.simulation.adapters import AdapterLedger

        ledger, one, other = AdapterLedger(), object(), object()
        assert ledger.state("red", one) == (0, False)
        change = ledger.begin("red")
        assert ledger.state("red", one) == (1, None)
        ledger.confirm("red", one, change, True)
        assert (ledger.state("red", one), ledger.state("red", other)) == ((1, True), (1, None))
        ledger.begin("red")
        ledger.confirm("red", one, change, True)
        assert ledger.state("red", one) == (2, None)
        """
    )


def test_an_account_rejects_what_is_over_a_limit_and_refills_evenly() -> None:
    """By the documented limits alone."""
    run_inside(
        """
        from tests.simulation.key_account import KeyAccount

        limits = {"max_concurrent": None, "requests_per_minute": 2, "tokens_per_minute": None}
        account = KeyAccount({"tenant": "t", **limits}, 0.0, 512)
        for number in range(2):
            assert account.outcomes(0.1 * number) == {"admitted"}
            account.enter(number, {}, b"", 0.1 * number)
        assert account.outcomes(0.2) == {"requests per minute"}
        assert account.outcomes(29.0) == {"requests per minute"}
        assert account.outcomes(31.0) == {"admitted"}

        account = KeyAccount({"tenant": "t", **limits, "requests_per_minute": None, "max_concurrent": 1}, 0.0, 512)
        account.enter(0, {}, b"", 0.0)
        assert account.outcomes(0.0) == {"requests at a time"}
        account.leave(0, 0.0)
        assert account.outcomes(0.0) == {"admitted"}
        """
    )


def test_an_account_holds_what_a_request_may_use_until_it_ends() -> None:
    """Then what it used stays charged; more than there is, and a rejection with enough left, are found."""
    run_inside(
        """
        from tests.simulation.key_account import KeyAccount
        from tests.coordinator.fakes import request_context
        from tokenwire.coordinator.auth.rate_limit import Reservation
        from tokenwire.coordinator.generation.context import CONTEXT
        from tokenwire.coordinator.generation.service import GenerationHandle

        limits = {"max_concurrent": None, "requests_per_minute": None, "tokens_per_minute": 600}
        account = KeyAccount({"tenant": "t", **limits}, 0.0, 512)

        def enter(number, prompt_tokens):
            context = request_context()
            account.enter(number, {CONTEXT: context}, b'{"n": 2, "max_tokens": 100}', 0.0)
            context.record.prompt_tokens = prompt_tokens
            context.handle = GenerationHandle(reservation=Reservation(0, lambda tokens: None))
            return context

        first = enter(0, 200)
        assert not account.refusal_problem(201, 0.0)
        assert "was refused 199 tokens and had 200" in account.refusal_problem(199, 0.0)
        first.record.completion_tokens = 50
        first.handle.settle(250)
        account.leave(0, 0.0)
        assert account.refusal_problem(350, 0.0) == "" != account.refusal_problem(349, 0.0)
        enter(1, 150)
        account.observe(0.0)
        assert not account.is_overdrawn
        enter(2, 1)
        account.observe(0.0)
        assert account.is_overdrawn
        """
    )


def test_of_two_tenants_that_wait_the_one_that_is_behind_is_next() -> None:
    """By how much one is behind when both begin to wait is not known, but it does not change."""
    run_inside(
        """
        from tests.simulation.queues import _Rivalry

        rivalry = _Rivalry((1, 1))
        for lead, is_first in ((0, True), (300, True), (600, False), (300, True), (600, False), (200, True)):
            assert rivalry.started(lead, is_first) <= 0
        assert rivalry.started(210, False) == 90
        """
    )


def test_work_is_what_was_generated_and_in_advance_what_may_be() -> None:
    """Of a sequence that has ended, was aborted or lost its worker it is what it had."""
    run_inside(
        """
        from tests.simulation.observed_work import ObservedSequence
        from tests.workers import Listener
        from tokenwire.errors import WorkerLost
        from tokenwire.v1 import inference_pb2 as pb

        def observed(prompt_tokens=100):
            return ObservedSequence(Listener(), prompt_tokens)

        ended, aborted, lost = observed(), observed(0), observed(0)
        assert ended.work(runs=True) == 356
        ended.prefilled(pb.PrefillInfo(cached_tokens=50))
        assert ended.work(runs=True) == 311
        for each in (ended, aborted, lost):
            each.step([1] * 300, None)
        assert ended.work(runs=True) == 55 + 512
        ended.step([1], pb.Finish(reason=pb.FINISH_REASON_STOP))
        assert ended.work(runs=False) == 55 + 301
        assert aborted.work(runs=False) == 300
        lost.fail(WorkerLost("gone"))
        assert lost.work(runs=False) == 300
        """
    )


def test_what_one_tenant_leaves_of_its_share_is_shared_by_the_others() -> None:
    """By their weights."""
    run_inside(
        """
        from tests.simulation.queues import _max_min_shares

        equal = dict.fromkeys("abc", 1)
        assert _max_min_shares({"a": 14, "b": 1, "c": 9}, equal, 16) == {"a": 7.5, "b": 1, "c": 7.5}
        assert _max_min_shares({"a": 4, "b": 1, "c": 9}, equal, 16) == {"a": 4, "b": 1, "c": 9}
        assert _max_min_shares({"a": 16, "b": 16}, {"a": 3, "b": 1}, 16) == {"a": 12, "b": 4}
        """
    )


def test_the_epochs_of_a_worker_only_rise_and_an_operation_leaves_its_own() -> None:
    """By the order in which it published its states: an answer may overtake an event."""
    run_inside(
        """
        from tests.simulation.serving_states import PublishedStates
        from tests.simulation.world import World
        from tokenwire.v1 import control_pb2
        from tokenwire.v1 import inference_pb2 as pb

        world = World(0)
        worker, other = world.node("w0"), world.node("w1")

        def event(epoch, revision):
            return pb.SessionResponse(serving=pb.ServingState(epoch=epoch, revision=revision))

        states = PublishedStates()
        for message in (event(5, 2), event(4, 1), event(5, 3), event(7, 5), event(6, 4)):
            assert not states.problem(worker, None, message)
        assert not states.problem(other, None, event(1, 1))
        assert "from epoch 7 to 6" in states.problem(worker, None, event(6, 6))

        pause = control_pb2.PauseGenerationRequest(epoch=9)
        for epoch, wrong in ((8, True), (9, False), (10, False)):
            answer = control_pb2.PauseGenerationResponse(serving=pb.ServingState(epoch=epoch, revision=epoch))
            assert bool(PublishedStates().problem(worker, pause, answer)) is wrong
        """
    )


def test_workers_that_gave_a_request_tokens_are_none_that_died_when_they_had_just_begun_with_it() -> None:
    """One that it may never have reached is."""
    run_inside(
        """
        from tests.simulation.witness import Witness
        from tests.simulation.world import World
        from tokenwire.v1 import inference_pb2 as pb

        witness, world = Witness(print, signed=False), World(0)
        for call in range(3):
            process = world.node(f"w{call}")
            process.kill()
            submit = pb.Submit(request_id="r0" if call < 2 else "r1", slots=[0])
            witness.on_command(call, "10.0.0.1", process, pb.SessionRequest(submit=submit))
        assert witness.fallen("r0") == 3
        for count in (4, 1):
            frame = pb.StepFrame(slots=[0], token_ids=range(count), counts=[count])
            assert witness.fallen("r0") == 3
            witness.on_event(0, pb.SessionResponse(frame=frame))
        assert (witness.fallen("r0"), witness.fallen("r1")) == (2, 3)
        """
    )


def test_an_account_judges_what_headers_say_is_left_and_when_a_rejected_request_may_come_again() -> None:
    """Neither too early nor too late."""
    run_inside(
        """
        from tests.simulation.key_account import KeyAccount

        limits = {"max_concurrent": 1, "requests_per_minute": 6, "tokens_per_minute": None}
        account = KeyAccount({"tenant": "t", **limits}, 0.0, 512)
        account.enter(0, {}, bytearray(), 0.0)

        def said(limit, remaining, reset):
            values = {"limit": limit, "remaining": remaining, "reset": reset}
            return {f"x-ratelimit-{name}-requests".encode(): value.encode() for name, value in values.items()}

        assert not account.headers_problem(said("6", "5", "10s"), 0.0)
        assert not account.headers_problem(said("6", "5", "5s"), 5.0)
        for wrong in ({}, said("6", "6", "5s"), said("6", "5", "10s"), said("5", "5", "5s")):
            assert account.headers_problem(wrong, 5.0), wrong
        tokens = {key.replace(b"requests", b"tokens"): value for key, value in said("6", "5", "5s").items()}
        assert account.headers_problem(said("6", "5", "5s") | tokens, 5.0)

        for number in range(1, 6):
            account.enter(number, {}, bytearray(), 5.0)
        waits = {seconds: account.retry_problem("requests per minute", 0, seconds, 5.0) for seconds in (4, 5, 7)}
        assert not waits[5] and "after which it has" in waits[4] and "earlier" in waits[7], waits
        assert not account.retry_problem("requests at a time", 0, 1, 5.0)
        assert account.retry_problem("requests at a time", 0, 5, 5.0)
        """
    )
