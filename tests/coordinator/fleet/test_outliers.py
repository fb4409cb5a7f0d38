"""Which workers are ejected, for how long, and how many.

One file, since all tests are of one class over the same fleet.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tests.clock import Clock
from tests.coordinator.fleet.loaded_worker import LoadedWorker
from tokenwire.coordinator.fleet.outliers import EjectionReason, OutlierDetector, OutlierSettings
from tokenwire.coordinator.fleet.session_stats import SessionStats, TokenGaps


@dataclass
class PacedWorker(LoadedWorker):
    """A worker that sends a token every so often, as long as it is not silent."""

    gap_s: float = 0.02
    model_name: str = "m"
    generates: bool = True
    ejected: str = ""
    withheld: str = ""
    on_probation: bool = False
    errors: int = 0
    starved: int = 0
    failed: int = 0
    witnesses: Mapping[str, int] = field(default_factory=Counter)
    ejections: dict[EjectionReason, int] = field(default_factory=lambda: dict.fromkeys(EjectionReason, 0))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.gaps: TokenGaps | None = TokenGaps(SessionStats(), 0.0)
        self._owed_s = 0.0

    @property
    def awaited_slots(self) -> int:
        """Slots without their terminal event that are not aborted."""
        return self.slots.open - self.slots.given_up

    def burst(self, tokens: int, after_s: float) -> None:
        """Send some tokens at once, the first one after so much time."""
        assert self.gaps is not None
        self.workload.tokens += tokens
        self.gaps.tokens += tokens
        self.gaps.seconds += after_s + (tokens - 1) * 0.02

    def run(self, seconds: float) -> None:
        """Send what it sends in so much time."""
        if self.gaps is None:
            return
        self._owed_s += seconds
        tokens = int(self._owed_s / self.gap_s)
        self._owed_s -= tokens * self.gap_s
        self.workload.tokens += tokens
        self.gaps.tokens += tokens
        self.gaps.seconds += tokens * self.gap_s


class ComparedFleet:
    """Workers that all have requests, and their detector."""

    def __init__(self, time: Clock, size: int, settings: OutlierSettings | None = None) -> None:
        self.time = time
        self.workers = [PacedWorker(f"w{number}", clock=time) for number in range(size)]
        self.covered = True
        self.replaced = False
        self.detector: OutlierDetector[PacedWorker] = OutlierDetector(settings or OutlierSettings(), time)
        for worker in self.workers:
            worker.take()
        self.detector.check(self.workers, lambda worker: self.covered)

    def run(self, seconds: int) -> list[PacedWorker]:
        """Let time pass, with a check each second; return who was ejected or readmitted."""
        changed = []
        for _ in range(seconds):
            self.time.now += 1
            for worker in self.workers:
                worker.run(1.0)
            changed += self.detector.check(self.workers, lambda worker: self.covered, lambda worker: self.replaced)
        return changed

    @property
    def ejected(self) -> list[str]:
        """The addresses of those that are ejected."""
        return [worker.address for worker in self.workers if worker.ejected]


SILENT_GAP_S = 1e9


@pytest.fixture
def fleet(time: Clock) -> ComparedFleet:
    """Three equal workers."""
    return ComparedFleet(time, 3)


def test_equal_workers_are_never_ejected(fleet: ComparedFleet) -> None:
    """However slow all of them are."""
    assert fleet.run(60) == []
    for worker in fleet.workers:
        worker.gap_s = 5.0
    assert fleet.run(300) == []


def test_a_worker_whose_tokens_take_30_times_as_long_is_ejected(fleet: ComparedFleet) -> None:
    """After ten seconds of it, with the reason; it gets requests again half a minute later, and then a minute later."""
    slow = fleet.workers[0]
    slow.gap_s = 0.6
    assert fleet.run(9) == []
    assert fleet.run(1) == [slow]
    assert slow.ejected == "it is ejected for 30 s: its tokens take 0.60 s, those of others 0.020 s"
    assert fleet.run(29) == []
    assert fleet.run(1) == [slow]
    assert not slow.ejected
    assert fleet.run(9) == []
    assert fleet.run(1) == [slow]
    assert slow.ejected.startswith("it is ejected for 60 s")
    assert slow.ejections == dict.fromkeys(EjectionReason, 0) | {EjectionReason.SLOW: 2}


@pytest.mark.parametrize(("gap_s", "others_s"), [(0.15, 0.005), (0.5, 0.06)])
def test_a_worker_that_is_somewhat_slower_is_not(fleet: ComparedFleet, gap_s: float, others_s: float) -> None:
    """Less than ten times, or still fast."""
    for worker in fleet.workers:
        worker.gap_s = others_s
    fleet.workers[0].gap_s = gap_s
    assert fleet.run(120) == []


def test_a_worker_that_is_slow_at_times_is_not(fleet: ComparedFleet) -> None:
    """One fast second in ten: a prompt was in its steps."""
    for _ in range(10):
        fleet.workers[0].gap_s = 0.6
        assert fleet.run(8) == []
        fleet.workers[0].gap_s = 0.02
        assert fleet.run(1) == []


def test_a_worker_that_sends_quick_tokens_between_silences_is_slow(fleet: ComparedFleet) -> None:
    """Five tokens and nine seconds of nothing are two seconds for each, as its clients see it."""
    bursts = fleet.workers[0]
    changed = []
    for _ in range(3):
        bursts.gap_s = SILENT_GAP_S
        changed += fleet.run(8)
        bursts.burst(5, after_s=8.9)
        bursts.gap_s = SILENT_GAP_S
        changed += fleet.run(1)
    assert changed == [bursts]
    assert bursts.ejected == "it is ejected for 30 s: its tokens take 1.80 s, those of others 0.020 s"


def test_one_long_step_is_no_outlier(fleet: ComparedFleet) -> None:
    """A compilation stops all sequences of a worker for half a minute, once."""
    stopped = fleet.workers[0]
    fleet.run(20)
    stopped.gap_s = SILENT_GAP_S
    assert fleet.run(25) == []
    stopped.burst(1, after_s=25.0)
    stopped.gap_s = 0.02
    assert fleet.run(60) == []


def test_time_in_which_a_worker_was_paused_does_not_count(fleet: ComparedFleet) -> None:
    """Nor does the first token after it."""
    paused = fleet.workers[0]
    for _ in range(10):
        assert fleet.run(2) == []
        paused.generates, paused.gap_s = False, SILENT_GAP_S
        assert fleet.run(5) == []
        paused.burst(1, after_s=5.0)
        paused.generates, paused.gap_s = True, 0.02


def test_a_worker_that_fails_what_others_serve_is_ejected(fleet: ComparedFleet) -> None:
    """The fifth one is no chance; also one whose pace is unknown, but never the last one."""
    failing, other = fleet.workers[:2]
    failing.failed, failing.gaps = 4, None
    assert fleet.run(10) == []
    failing.failed, failing.witnesses = 5, Counter(w1=3, w2=2)
    fleet.covered = False
    assert fleet.run(1) == []
    fleet.covered = True
    assert fleet.run(1) == [failing]
    assert failing.ejected == "it is ejected for 30 s: 5 requests failed there that others served"
    other.failed, other.witnesses = 5, Counter(w1=3, w2=2)
    assert fleet.run(1) == [other]  # however many are ejected
    assert fleet.run(28) == []
    assert fleet.run(1) == [failing]
    assert (failing.failed, failing.witnesses) == (0, Counter())


def test_one_worker_alone_ejects_no_other_by_serving_what_it_refuses(fleet: ComparedFleet) -> None:
    """Where there are more: it may serve what no worker should. Nor with an accident beside that."""
    refusing = fleet.workers[0]
    refusing.failed, refusing.witnesses = 51, Counter(w1=50, w2=1)
    assert fleet.run(2) == []
    refusing.witnesses = Counter(w1=50, w2=2)
    assert fleet.run(1) == [refusing]


def test_of_two_workers_each_tells_of_the_other(time: Clock) -> None:
    """Else a client would meet the failing one for ever."""
    fleet = ComparedFleet(time, 2)
    failing = fleet.workers[0]
    failing.failed, failing.witnesses = 5, Counter(w1=5)
    assert fleet.run(1) == [failing]


def test_seconds_with_long_prompts_do_not_count(fleet: ComparedFleet) -> None:
    """Their steps are slow on any worker."""
    fleet.workers[0].gap_s = 0.6
    fleet.workers[0].take(prompt=9000)
    assert fleet.run(60) == []


def test_a_worker_that_sends_no_token_while_others_do_is_ejected(fleet: ComparedFleet) -> None:
    """After the timeout, and the time that its prompts may take; an idle one is not."""
    silent, idle = fleet.workers[:2]
    silent.gap_s = idle.gap_s = SILENT_GAP_S
    silent.take(prompt=5000)
    for slot in range(len(idle.slots.listeners)):
        idle.slots.release(slot)
    assert fleet.run(40) == []
    assert fleet.run(1) == [silent]
    assert "sent no token for 41 s" in silent.ejected
    assert silent.ejections[EjectionReason.SILENT] == 1


def test_a_worker_that_starves_requests_is_ejected(fleet: ComparedFleet) -> None:
    """The third one is no chance, however fast it serves the others; after that it counts anew."""
    starving = fleet.workers[0]
    starving.starved = 2
    assert fleet.run(10) == []
    starving.starved = 3
    assert fleet.run(1) == [starving]
    assert "3 requests got no token there" in starving.ejected
    assert starving.ejections[EjectionReason.STARVING] == 1
    assert fleet.run(30) == [starving]
    assert fleet.run(60) == []


@pytest.mark.parametrize("generates", [True, False])
def test_nobody_is_silent_alone_where_all_are(fleet: ComparedFleet, generates: bool) -> None:
    """They wait behind long prompts, or are paused."""
    for worker in fleet.workers:
        worker.gap_s, worker.generates = SILENT_GAP_S, generates
    assert fleet.run(600) == []


def test_nobody_is_silent_alone_where_all_fall_silent_at_once(fleet: ComparedFleet) -> None:
    """Others must have sent tokens since."""
    fleet.run(5)
    for worker in fleet.workers:
        worker.gap_s = SILENT_GAP_S
    assert fleet.run(600) == []


def test_silence_is_compared_to_that_of_others(fleet: ComparedFleet) -> None:
    """Where each of them is silent for 20 s now and then, 30 are nothing."""
    for worker in fleet.workers:
        worker.gap_s = 20.0
    fleet.run(60)
    fleet.workers[0].gap_s = SILENT_GAP_S
    assert fleet.run(150) == []
    assert fleet.run(60) == [fleet.workers[0]]


@pytest.mark.parametrize(("size", "percent", "most"), [(9, 10.0, 1), (20, 10.0, 2), (20, 100.0, 5), (20, 0.0, 0)])
def test_a_share_of_the_slow_workers_is_ejected_at_most(time: Clock, size: int, percent: float, most: int) -> None:
    """At least one, unless it is none."""
    fleet = ComparedFleet(time, size, OutlierSettings(max_ejection_percent=percent))
    for worker in fleet.workers[: size // 4]:
        worker.gap_s = 0.6
    fleet.run(30)
    assert len(fleet.ejected) == most


@pytest.mark.parametrize(("percent", "ejected"), [(10.0, 3), (0.0, 0)])
def test_all_silent_workers_are_ejected_while_another_one_generates(time: Clock, percent: float, ejected: int) -> None:
    """Requests of those that stay would never end. The last worker stays: there is nobody to compare it to."""
    fleet = ComparedFleet(time, 4, OutlierSettings(max_ejection_percent=percent))
    fleet.run(10)
    for worker in fleet.workers[:-1]:
        worker.gap_s = SILENT_GAP_S
    fleet.run(31)
    assert len(fleet.ejected) == ejected


def test_a_worker_is_not_silent_for_what_nobody_waits_for(fleet: ComparedFleet) -> None:
    """Sequences that were aborted, because they went on elsewhere, may never end at such a worker."""
    silent = fleet.workers[0]
    fleet.run(10)
    silent.gap_s = SILENT_GAP_S
    assert fleet.run(31) == [silent]
    silent.slots.give_up(0)
    assert fleet.run(30) == [silent]
    assert fleet.run(120) == []


def test_clients_that_leave_a_silent_worker_do_not_excuse_it(fleet: ComparedFleet) -> None:
    """The seconds in which somebody waits are added up, whoever does, until there is a token."""
    silent, honest = fleet.workers[:2]
    silent.gap_s = SILENT_GAP_S
    changed = []
    for _ in range(13):
        for worker in (silent, honest):
            worker.take()
        changed += fleet.run(3)
        for worker in (silent, honest):
            worker.slots.release_all()
        changed += fleet.run(2)

    assert changed[:1] == [silent]
    assert not honest.ejected


def test_the_last_worker_stays(fleet: ComparedFleet) -> None:
    """One that nobody could replace is not ejected, and is readmitted once nobody could."""
    slow = fleet.workers[0]
    slow.gap_s = 0.6
    fleet.covered = False
    assert fleet.run(30) == []
    fleet.covered = True
    assert fleet.run(1) == [slow]
    fleet.covered = False
    assert fleet.run(1) == [slow]
    assert not slow.ejected


def test_the_ejected_worker_is_the_one_that_others_must_cover(fleet: ComparedFleet) -> None:
    """It is readmitted when they no longer do."""
    slow = fleet.workers[0]
    slow.gap_s = 0.6
    assert fleet.run(10) == [slow]
    assert fleet.detector.check(fleet.workers, lambda worker: worker is slow) == []
    assert fleet.detector.check(fleet.workers, lambda worker: worker is not slow) == [slow]


def test_only_workers_of_one_model_are_compared(fleet: ComparedFleet) -> None:
    """Another one may be slower."""
    fleet.workers[0].gap_s, fleet.workers[0].model_name = 0.6, "large"
    assert fleet.run(60) == []


def test_a_worker_whose_pace_is_unknown_is_left_alone(fleet: ComparedFleet) -> None:
    """A plain vLLM server has no steps."""
    fleet.workers[0].gap_s, fleet.workers[0].gaps = SILENT_GAP_S, None
    for worker in fleet.workers[1:]:
        worker.run(1.0)
    fleet.workers.pop(0)
    assert fleet.run(60) == []


def _again(fleet: ComparedFleet, slow: PacedWorker) -> int:
    slow.gap_s = 0.6
    fleet.run(10)
    return int(slow.ejected.split()[4])


@pytest.mark.parametrize(
    ("well_s", "length_s"), [(29, 60), (30, 30)], ids=["soon afterwards", "after it went well for as long"]
)
def test_ejections_are_forgotten(fleet: ComparedFleet, well_s: int, length_s: int) -> None:
    """Each after its own length without another."""
    slow = fleet.workers[0]
    assert _again(fleet, slow) == 30
    slow.gap_s = 0.02
    fleet.run(30 + well_s - 10)
    assert not slow.ejected
    assert _again(fleet, slow) == length_s


def test_one_of_two_ejections_is_forgotten_at_a_time(fleet: ComparedFleet) -> None:
    """The first one still counts after twice its length."""
    slow = fleet.workers[0]
    assert _again(fleet, slow) == 30
    fleet.run(30)
    assert _again(fleet, slow) == 60
    slow.gap_s = 0.02
    fleet.run(60 + 61)
    assert _again(fleet, slow) == 60


def test_a_new_session_starts_anew(fleet: ComparedFleet) -> None:
    """What was slow before says nothing about another process."""
    slow = fleet.workers[0]
    slow.gap_s = 0.6
    fleet.run(9)
    slow.gaps = TokenGaps(SessionStats(), 0.0)
    assert fleet.run(10) == []
    assert fleet.run(1) == [slow]


def test_a_new_session_has_sent_nothing_yet(fleet: ComparedFleet) -> None:
    """What a worker sent before does not show that others are silent alone."""
    fleet.run(5)
    for worker in fleet.workers:
        worker.gap_s = SILENT_GAP_S
    fleet.run(20)
    fleet.workers[1].gaps = TokenGaps(SessionStats(), 0.0)
    assert fleet.run(600) == []


def test_a_worker_that_had_nothing_to_do_was_not_silent(fleet: ComparedFleet) -> None:
    """Its time counts from its next request on."""
    silent = fleet.workers[0]
    fleet.run(5)
    silent.gap_s = SILENT_GAP_S
    silent.slots.release_all()
    fleet.run(600)
    silent.take()
    assert fleet.run(28) == []
    assert fleet.run(10) == [silent]


def test_the_last_worker_of_a_revision_is_withheld_while_another_revision_serves(fleet: ComparedFleet) -> None:
    """For as long as one is ejected, then for twice as long; not for being slow, nor where nobody else serves."""
    bad = fleet.workers[0]
    fleet.covered, bad.gap_s = False, 0.6
    fleet.replaced = True
    assert fleet.run(60) == []
    assert not bad.withheld

    bad.gap_s, bad.errors = 0.02, 5
    assert fleet.run(1) == []
    assert (bad.withheld[:49], bad.on_probation) == ("its revision gets no new requests for 30 s, witho", True)
    fleet.run(29)
    assert bad.withheld
    fleet.run(1)
    assert (bad.withheld, bad.on_probation, bad.errors) == ("", True, 4)
    bad.errors += 1
    fleet.run(1)
    assert bad.withheld.startswith("its revision gets no new requests for 60 s")
    fleet.replaced = False
    fleet.run(1)
    assert not bad.withheld
    assert (bad.ejected, sum(bad.ejections.values())) == ("", 0)


def test_a_silent_last_worker_of_a_revision_is_withheld(fleet: ComparedFleet) -> None:
    """After the same time as one that is ejected."""
    fleet.covered, fleet.replaced, fleet.workers[0].gap_s = False, True, SILENT_GAP_S
    fleet.run(30)
    assert not fleet.workers[0].withheld
    fleet.run(1)
    assert fleet.workers[0].withheld.endswith("it has requests, and sent no token for 31 s")
    assert [worker.withheld for worker in fleet.workers[1:]] == ["", ""]
