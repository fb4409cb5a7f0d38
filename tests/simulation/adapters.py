"""LoRA adapters of a simulated fleet: which there are, as far as operators know for certain."""

from tests.simulation.world import Node
from tokenwire.v1 import control_pb2

NAMES = ("red", "blue")


class AdapterLedger:
    """What operators know of each adapter, and under which ids they are."""

    def __init__(self) -> None:
        self._changes: dict[str, int] = dict.fromkeys(NAMES, 0)
        """How often somebody began to load or unload an adapter."""
        self._confirmed: dict[tuple[str, Node], tuple[int, bool]] = {}
        """What all workers confirmed to a coordinator process: after how many changes, whether it is loaded."""
        self._ids: dict[int, tuple[str, str]] = {}
        """Name and path by id."""

    def begin(self, name: str) -> int:
        """Record that an operation begins; return its number."""
        self._changes[name] += 1
        return self._changes[name]

    def confirm(self, name: str, node: Node, change: int, loaded: bool) -> None:
        """Record that all workers have confirmed an operation of this number."""
        if self._changes[name] == change:
            self._confirmed[name, node] = change, loaded

    def state(self, name: str, node: Node) -> tuple[int, bool | None]:
        """Return the number of changes, and whether a coordinator serves an adapter; None: that is not certain."""
        changes = self._changes[name]
        if not changes:
            return 0, False
        known, loaded = self._confirmed.get((name, node), (0, False))
        return changes, loaded if known == changes else None

    def on_control_call(self, request: object) -> str:
        """Take an operation as it leaves a coordinator; return what is wrong with it, empty if nothing."""
        if not isinstance(request, control_pb2.LoadLoraRequest):
            return ""
        adapter = request.adapter.name, request.adapter.path
        known = self._ids.setdefault(request.adapter.id, adapter)
        return "" if known == adapter else f"{adapter} is loaded under the id of {known}"

    def name_of(self, number: int) -> str:
        """Return the name of an adapter by its id; empty for the base model."""
        return self._ids[number][0] if number in self._ids else ""
