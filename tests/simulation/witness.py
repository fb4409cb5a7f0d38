"""A witness of all sessions: attributes what passes between coordinators and workers to requests, by itself.

It shares no code with what it judges: it reads the messages as they leave a coordinator and as one reads them.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from tests.simulation.adapters import AdapterLedger
from tests.simulation.journeys import Choice, Journeys, Visit
from tests.simulation.serving_states import OrderedRecords, PublishedStates
from tests.simulation.submissions import SubmissionLedger
from tests.simulation.versions import WeightOrders
from tests.simulation.world import NODE, Node
from tokenwire.protocol.command_batch import commands_of
from tokenwire.v1 import control_pb2
from tokenwire.v1 import inference_pb2 as pb

_FEW_TOKENS = 4
"""With more, a sequence is no suspect in the death of its worker."""


@dataclass(slots=True)
class Stay:
    """One sequence in one session."""

    session: "WatchedSession"
    request_id: str
    lost: bool = False
    """Whether its session was lost before its terminal event."""
    tokens: int = 0
    """How many its coordinator has read."""


@dataclass(slots=True, eq=False)
class WatchedSession:
    """A session between a coordinator and a worker."""

    address: str
    process: Node
    visit: Visit
    coordinator: Node | None
    open: dict[int, Stay] = field(default_factory=dict)
    """By slot."""
    aborted: set[int] = field(default_factory=set)
    """Open slots whose abort was sent."""

    def unwanted(self, is_wanted: Callable[[Choice], bool]) -> list[int]:
        """Return the slots without an abort that nobody has placed a choice in, or only one that is not wanted."""
        choices = self.visit.choices
        open_ = (slot for slot in self.open if slot not in self.aborted)
        return [slot for slot in open_ if slot not in choices or not is_wanted(choices[slot])]


class Witness:
    """Keeps the stays of all requests, and reports what no session may do."""

    def __init__(self, violate: Callable[[str], None], signed: bool) -> None:
        """`signed`: whether coordinators have a key."""
        self._violate = violate
        self._sessions: dict[object, WatchedSession] = {}
        """By the call that carries a session."""
        self._stays: dict[str, list[Stay]] = {}
        self.weights = WeightOrders(may_undo=not signed)
        self.states = PublishedStates()
        self.records = OrderedRecords()
        self.adapters = AdapterLedger()
        self.journeys = Journeys()
        self.submissions = SubmissionLedger()
        self.announces_weights = True
        """Whether all workers so far say which weights they started with."""
        self.long_partitions: Callable[[], int] = lambda: 0
        """Returns how many partitions have lasted for so long that a worker behind one counts as dead."""
        self.unlisted = 0
        """How often a coordinator's list lost a worker: to that coordinator it is dead once its connection is lost."""
        self._aborted_ids: set[str] = set()
        self._aborted_processes: set[Node] = set()
        """Those that a pause with abort was sent to."""
        self._used: set[Node] = set()
        """Workers' processes with sessions: what they were sent last may not have left its coordinator."""

    def fallen(self, request_id: str) -> int:
        """Return how many workers died, failed or were gone when they may have just begun with a request.

        Gone are those that are no longer listed, or that could not be reached for too long.

        A submission may be lost before it leaves its coordinator, so only those are left out that gave it tokens.
        """
        stays = self._stays.get(request_id, [])
        began = {stay.session.process for stay in stays if stay.tokens <= _FEW_TOKENS}
        went_on = {stay.session.process for stay in stays} - began
        gone = self.unlisted + self.long_partitions()
        return gone + sum(process.dead or process.harmed for process in self._used - went_on)

    @property
    def sessions(self) -> Collection[WatchedSession]:
        """Those that have not ended."""
        return self._sessions.values()

    def on_command(self, call: object, address: str, process: Node, command: object) -> None:
        """Take what a coordinator sends to a worker's process."""
        if not isinstance(command, pb.SessionRequest):
            return
        self._used.add(process)
        session = self._sessions.get(call)
        if session is None:
            coordinator = NODE.get(None)
            visit = self.journeys.open_visit(coordinator, address, process)
            session = self._sessions[call] = WatchedSession(address, process, visit, coordinator)
        for each in commands_of(command):
            if each.WhichOneof("command") == "abort":
                session.aborted.update(each.abort.slots)
            elif each.WhichOneof("command") == "submit":
                self._on_submit(session, each.submit)

    def on_control_call(self, process: Node, request: object) -> None:
        """Take a single request of a coordinator to a worker's process."""
        if isinstance(request, control_pb2.AbortRequest):
            self._aborted_ids.update(request.request_ids)
        if isinstance(request, control_pb2.PauseGenerationRequest) and request.mode == control_pb2.PAUSE_MODE_ABORT:
            self._aborted_processes.add(process)
        self.weights.on_control_call(request)
        self.records.on_control_call(request)
        if problem := self.adapters.on_control_call(request):
            self._violate(problem)

    def on_response(self, process: Node, request: object, response: object) -> None:
        """Take what a coordinator reads of a worker's process: `request` is what it answers, None in a session."""
        if problem := self.states.problem(process, request, response):
            self._violate(problem)

    def on_event(self, call: object, event: object) -> None:
        """Take what a coordinator reads in a session."""
        if not isinstance(event, pb.SessionResponse):
            return
        kind = event.WhichOneof("event")
        if kind == "serving":
            self.weights.on_serving_state(event.serving)
            self.records.on_serving_state(event.serving)
        session = self._sessions.get(call)
        if session is None:
            return
        if kind == "frame":
            self._on_frame(session, event.frame)
        elif kind == "welcome":
            self.journeys.on_welcome(session.visit, session.process.world.time(), event.welcome.draining)
        elif kind == "draining":
            session.visit.drains = True
        elif kind == "refusal":
            self.journeys.on_refusal(session.visit, event.refusal)
            for slot in event.refusal.slots:
                self._close(session, slot)

    def on_end(self, call: object, has_cause: bool) -> None:
        """Take the end of a call: the sequences in its open slots are lost. `has_cause`: faults may have ended it."""
        session = self._sessions.pop(call, None)
        if session is None:
            return
        self.journeys.on_end(session.visit, session.process.world.time())
        if not (has_cause or self.unlisted):
            self._violate(f"the session with {session.address} ended, though nothing happened to it")
        for stay in session.open.values():
            stay.lost = True

    def _on_submit(self, session: WatchedSession, submit: pb.Submit) -> None:
        choice = session.visit.choices.get(submit.slots[0])
        if problem := self.submissions.problem(submit, None if choice is None else choice[1]):
            self._violate(problem)
        for slot in submit.slots:
            if slot in session.open:
                self._violate(f"slot {slot} of {session.address} was used again before its terminal event")
            session.aborted.discard(slot)
            session.open[slot] = stay = Stay(session, submit.request_id)
            self._stays.setdefault(submit.request_id, []).append(stay)

    def _on_frame(self, session: WatchedSession, frame: pb.StepFrame) -> None:
        if len(frame.counts or frame.slots) != len(frame.slots):
            self._violate(f"a frame of {session.address} has {len(frame.counts)} counts for {len(frame.slots)} slots")
        for slot, count in zip(frame.slots, frame.counts or [1] * len(frame.slots), strict=False):
            if slot in session.open:
                session.open[slot].tokens += count
                self.journeys.on_tokens(session.visit, slot)
            else:
                self._violate(f"tokens for slot {slot} of {session.address}, which is not open")
        for finish in frame.finishes:
            self.journeys.on_finish(session.visit, finish)
            was_aborted = self._may_be_aborted(session, finish.slot)
            stay = self._close(session, finish.slot)
            if stay is None:
                continue
            stay.lost |= finish.handed_back
            if finish.reason == pb.FINISH_REASON_ABORT and not (finish.handed_back or was_aborted):
                self._violate(f"{stay.request_id} was aborted at {session.address}, though nobody has asked for it")

    def _may_be_aborted(self, session: WatchedSession, slot: int) -> bool:
        stay = session.open.get(slot)
        by_id = stay is not None and stay.request_id in self._aborted_ids
        return by_id or slot in session.aborted or session.process in self._aborted_processes

    def _close(self, session: WatchedSession, slot: int) -> Stay | None:
        if slot not in session.open:
            self._violate(f"a terminal event for slot {slot} of {session.address}, which is not open")
        return session.open.pop(slot, None)
