"""Judges what is taken back for another tenant: one that waits has less of the workers that it may go to."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import TypeVar

from tokenwire.coordinator.fleet.failover.preemption import MOST_AT_ONCE
from tokenwire.coordinator.fleet.request_handle import Placement

W = TypeVar("W")
"""What stands for a worker."""


def is_for_another(
    taken: Placement, places: Collection[tuple[str, W]], waiting: Iterable[tuple[Placement, Collection[W]]]
) -> bool:
    """Return whether a tenant that waits has less, by weight, than the one of which a place was taken.

    Places are tenants and the workers at which they still have one; each that waits stands beside its workers, since
    places elsewhere, at those of another revision, are of no use to it.
    """
    for rival, workers in waiting:
        held = Counter(tenant for tenant, worker in places if worker in workers)
        own = (held[taken.tenant] + MOST_AT_ONCE) / taken.weight  # others may have been taken back at the same time
        if rival.tenant != taken.tenant and held[rival.tenant] / rival.weight <= own:
            return True
    return False
