"""Judges every end that is not the reply's own: something that the simulation did must have caused it.

That faults are going on is no reason. Each message that a client may read says what has happened, and the witnesses
must have seen just that.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.client import SimulatedClient
from tests.simulation.oracle import runs_differ_at
from tests.simulation.single_run import SEEDED

if TYPE_CHECKING:
    from tests.simulation.run import SimulationRun

_ROUNDING = 1e-6
_DIFFERS = "a second run of the request differs"
"""Under other weights or in another batch, of a reply that only the first run could have given."""
_LOST = "The worker that generated this reply was lost"
_DEADS_OF_POISON = 2
_PREPARED_S = 4.0
"""The most from a worker's welcome until its tokenizer is there, over slow links."""

Judge = Callable[[SimulatedClient], bool]


class Causes:
    """Knows what may have ended a request with an error, and what had to happen before."""

    def __init__(self, run: "SimulationRun") -> None:
        self._run = run
        self._journeys = run.witness.journeys
        self._judges: tuple[tuple[int, str, Judge], ...] = (
            (400, r"This API key has \d+ tokens per minute", self._is_too_large),
            (404, r"The model `", self._may_lack_its_adapter),
            (422, r"Two workers died when they started this request", self._may_be_poison),
            (429, r"Rate limit reached for ", self._has_key),
            (429, r"All workers of ", self._was_not_queued),
            (429, r"the engine's queue is full", self._was_refused),
            (500, rf".*{_DIFFERS} from the first at token \d+", self._may_differ),
            (500, r"a simulated fault crashed the engine", self._is_lost),
            (503, f"{_LOST}", self._is_lost),
            (503, r"a simulated fault crashed the engine|the engine has not started", self._is_lost),
            (503, r"No worker had capacity|No worker serves ", self._waited_or_was_not_queued),
            (503, r"The last worker of ", self._lost_its_revision),
            (503, r"No worker has connected yet", self._had_nobody_to_serve_it),
            (503, r"This server shut down before", self._was_cancelled),
            (503, r"Workers died with this request and another one", self._may_be_poison),
            (504, r"Request timed out", self._has_timed_out),
        )

    def problem(self, client: SimulatedClient) -> str:
        """Return what is wrong with the error that a client got; empty if nothing."""
        code, message = client.error.get("code"), client.error.get("message", "")
        refusal = client.refusal
        if refusal == 401 or code in (401, 403):
            return "" if code == refusal else f"error {code} instead of {refusal}: {message}"
        for expected, pattern, judge in self._judges:
            if code == expected and re.match(pattern, message):
                return "" if judge(client) else f"error {code} without a cause: {message}"
        return f"error {code}: {message}"

    # Budgets of the client.

    def _is_too_large(self, client: SimulatedClient) -> bool:
        limit = self._run.tenants.tokens_per_minute(client.spec)
        return limit is not None and f"has {limit} tokens" in client.error["message"]

    def _has_key(self, client: SimulatedClient) -> bool:
        return bool(self._run.tenants.tenant_of(client.spec))  # an account of each key judges the rest

    def _has_timed_out(self, client: SimulatedClient) -> bool:
        timeout_s = self._run.settings.admission.request_timeout_s
        return timeout_s is not None and self._run.world.time() - client.begun_at >= timeout_s - _ROUNDING

    def _may_lack_its_adapter(self, client: SimulatedClient) -> bool:
        return client.spec["model"] is not None and client.has_adapter() is not True

    # Queues.

    def _was_not_queued(self, client: SimulatedClient) -> bool:
        rejections = self._journeys.rejections[client.server_node]
        return client.error["message"] in rejections or client.request_id in self._journeys.displaced

    def _waited_or_was_not_queued(self, client: SimulatedClient) -> bool:
        waited_s = self._journeys.longest_wait_s(client.request_id, self._run.world.time())
        timeout_s = self._run.settings.admission.queue_timeout_s
        return waited_s >= timeout_s - _ROUNDING or self._was_not_queued(client)

    # Workers.

    def _is_lost(self, client: SimulatedClient) -> bool:
        losses = self._journeys.most_losses(client.request_id)
        if self._has_unknown_noise(client):
            return losses > 0 or client.request_id in self._journeys.left_by_drains
        return losses > self._run.settings.failover.attempts

    def _has_unknown_noise(self, client: SimulatedClient) -> bool:
        """Return whether no other worker can generate a reply again, which its client wants exactly."""
        sampling = client.spec["sampling"]
        return self._run.upgrades.hides_seeds and sampling == "unseeded penalty" and client.prefers_error

    def _was_refused(self, client: SimulatedClient) -> bool:
        return client.error["message"] in self._journeys.refusals[client.request_id]

    def _may_be_poison(self, client: SimulatedClient) -> bool:
        return self._run.witness.fallen(client.request_id) >= _DEADS_OF_POISON

    def _may_differ(self, client: SimulatedClient) -> bool:
        """Return whether a second run gave other tokens, and the client prefers an error to a reply that goes on."""
        found = re.search(r"at token (\d+)", client.error["message"])
        assert found is not None
        place = int(found[1])
        placements = self._run.placements[client.request_id]
        weights = {placement.weights for placement in placements}
        if not self._run.witness.announces_weights:  # then those that workers started with may have been mixed
            weights = {placement.weights or str(placement.checkpoint) for placement in placements}
        return client.prefers_error and (len(weights) > 1 or runs_differ_at(place, placements, client.prompt))

    def _lost_its_revision(self, client: SimulatedClient) -> bool:
        if client.is_slow or self._run.witness.unlisted:
            return True  # that was long ago, or one left that nobody lists any more
        known = self._journeys.known_processes(client.server_node, self._run.world.time() - _PREPARED_S)
        placements = self._run.placements[client.request_id]
        if "draws the tokens of this seeded reply" in client.error["message"]:
            noises = {each.engine.capabilities().seeded_noise for each in placements}
            return client.spec["sampling"] in SEEDED and noises.isdisjoint(each.seeded_noise for each in known)
        return not {each.checkpoint for each in placements} <= {each.checkpoint for each in known}

    # Coordinators.

    def _had_nobody_to_serve_it(self, client: SimulatedClient) -> bool:
        since, node = client.begun_at - _PREPARED_S, client.server_node
        return (node is not None and node.thawed_at > since) or not self._journeys.was_served(node, since)

    def _was_cancelled(self, client: SimulatedClient) -> bool:
        return client.server_node is not None and client.server_node.out_of_time
