"""What prompt a turn of a conversation may have: the exact ids of earlier turns, then what the template gives."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tests.simulation.oracle import IM_END, chat_prompt
from tests.simulation.single_run import asks_for_ids
from tests.simulation.tenants import Tenants

if TYPE_CHECKING:
    from tests.simulation.client import SimulatedClient


class PromptOracle:
    """Checks the prompt of one request, and what is said of its origin."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        earlier: "SimulatedClient | None",
        must_reuse: Callable[[], bool],
        tenants: Tenants,
    ) -> None:
        """`must_reuse` returns, once the prompt is known, whether it must start with the ids of the earlier turn."""
        self._must_reuse = must_reuse
        self._known = _prompts(spec, earlier, tenants)
        self._reused: int | None = None
        self.prompt = self._known[0][1]

    @property
    def reused_last(self) -> bool:
        """Whether it starts with the ids of the turn before."""
        return self._reused == self._known[0][0] > 0

    @property
    def reused_other(self) -> bool:
        """Whether these are others than its text alone would give."""
        return self.reused_last and self.prompt not in [prompt for _, prompt in self._known[1:]]

    def take(self, ids: list[int]) -> str:
        """Take the prompt that a response names; return what is wrong with it, empty if nothing."""
        self.prompt = ids
        prompts = [prompt for _, prompt in self._known]
        return "" if ids in prompts else f"wrong prompt ids: {ids} is none of {prompts}"

    def take_history(self, history: Mapping[str, Any]) -> str:
        """Take what a response says of the prompt's origin, after the prompt; return what is wrong with it."""
        self._reused = reused = history["reused_tokens"]
        if history["source"] != ("stored" if reused else None):
            return f"{reused} reused ids from {history['source']}"
        if (reused, self.prompt) not in self._known:
            return f"{reused} reused ids, which is none of {[count for count, _ in self._known]}"
        if self._must_reuse() and not self.reused_last:
            return f"{reused} reused ids, though all {self._known[0][0]} of the turns before were known"
        return ""


def _prompts(
    spec: Mapping[str, Any], earlier: "SimulatedClient | None", tenants: Tenants
) -> list[tuple[int, list[int]]]:
    """Return the prompts that it may have, by how many ids they reuse: all turns' first, none last."""
    if spec["route"] != "chat":
        return [(0, list(spec["prompt"].encode()))]
    rest = [("user", spec["prompt"])]
    prompts: list[tuple[int, list[int]]] = []
    while earlier is not None:
        ids = [*earlier.prompt, *earlier.choices[0].token_ids]
        end = [] if ids[-1] == IM_END else [IM_END]
        if asks_for_ids(spec) and earlier.is_stored and tenants.may_share(spec, earlier.spec):
            prompts.append((len(ids), [*ids, *end, *b"\n", *chat_prompt(rest)]))
        rest = [*earlier.turn, *rest]
        earlier = earlier.earlier
    return [*prompts, (0, chat_prompt(rest))]
