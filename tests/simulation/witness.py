"""A witness of all sessions: attributes what passes between coordinators and workers to requests, by itself.

It shares no code with what it judges: it reads the messages as they leave a coordinator and as one reads them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.adapters import AdapterLedger
from tests.simulation.journeys import Journeys, Visit
from tests.simulation.serving_states import OrderedRecords, PublishedStates
from tests.simulation.versions import WeightOrders
from tests.simulation.world import NODE, Node
from tokenwire.v1 import inference_pb2 as pb

_FEW_TOKENS = 4
"""With more, a sequence is no suspect in the death of its worker."""


@dataclass(slots=True)
class Stay:
    """One sequence in one session."""

    session: "_Session"
    lost: bool = False
    """Whether its session was lost before its terminal event."""
    tokens: int = 0
    """How many its coordinator has read."""


@dataclass(slots=True, eq=False)
class _Session:
    address: str
    process: Node
    visit: Visit
    open: dict[int, Stay] = field(default_factory=dict)
    """By slot."""


class Witness:
    """Keeps the stays of all requests, and reports what no session may do."""

    def __init__(self, violate: Callable[[str], None], signed: bool) -> None:
        """`signed`: whether coordinators have a key."""
        self._violate = violate
        self._sessions: dict[object, _Session] = {}
        """By the call that carries a session."""
        self._stays: dict[str, list[Stay]] = {}
        self.weights = WeightOrders(may_undo=not signed)
        self.states = PublishedStates()
        self.records = OrderedRecords()
        self.adapters = AdapterLedger()
        self.journeys = Journeys()
        self.announces_weights = True
        """Whether all workers so far say which weights they started with."""
        self.unlisted = 0
        """How often a coordinator's list lost a worker: to that coordinator it is dead once its connection is lost."""
        self._used: set[Node] = set()
        """Workers' processes with sessions: what they were sent last may not have left its coordinator."""

    def fallen(self, request_id: str) -> int:
        """Return how many workers died, failed or were no longer listed when they may have just begun with a request.

        A submission may be lost before it leaves its coordinator, so only those are left out that gave it tokens.
        """
        stays = self._stays.get(request_id, [])
        began = {stay.session.process for stay in stays if stay.tokens <= _FEW_TOKENS}
        went_on = {stay.session.process for stay in stays} - began
        return self.unlisted + sum(process.dead or process.harmed for process in self._used - went_on)

    def on_command(self, call: object, address: str, process: Node, command: object) -> None:
        """Take what a coordinator sends to a worker's process."""
        if not isinstance(command, pb.SessionRequest):
            return
        self._used.add(process)
        session = self._sessions.get(call)
        if session is None:
            visit = self.journeys.open_visit(NODE.get(None), address, process)
            session = self._sessions[call] = _Session(address, process, visit)
        if command.WhichOneof("command") == "submit":
            for slot in command.submit.slots:
                if slot in session.open:
                    self._violate(f"slot {slot} of {address} was used again before its terminal event")
                session.open[slot] = stay = Stay(session)
                self._stays.setdefault(command.submit.request_id, []).append(stay)

    def on_control_call(self, request: object) -> None:
        """Take a single request of a coordinator."""
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

    def _on_frame(self, session: _Session, frame: pb.StepFrame) -> None:
        if len(frame.counts or frame.slots) != len(frame.slots):
            self._violate(f"a frame of {session.address} has {len(frame.counts)} counts for {len(frame.slots)} slots")
        for slot, count in zip(frame.slots, frame.counts or [1] * len(frame.slots), strict=False):
            if slot in session.open:
                session.open[slot].tokens += count
            else:
                self._violate(f"tokens for slot {slot} of {session.address}, which is not open")
        for finish in frame.finishes:
            self.journeys.on_finish(session.visit, finish)
            stay = self._close(session, finish.slot)
            if stay is not None and finish.handed_back:
                stay.lost = True

    def _close(self, session: _Session, slot: int) -> Stay | None:
        if slot not in session.open:
            self._violate(f"a terminal event for slot {slot} of {session.address}, which is not open")
        return session.open.pop(slot, None)
