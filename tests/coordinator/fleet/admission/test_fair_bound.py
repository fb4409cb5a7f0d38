"""Which requests are within a bound that tenants share, and which are refused for others."""

from collections.abc import Iterator, Mapping

import pytest

from tests.workers import Listener
from tokenwire.coordinator.fleet.admission.fair_bound import FairBound
from tokenwire.coordinator.fleet.admission.queued_request import QueuedRequest
from tokenwire.coordinator.fleet.request_handle import Placement
from tokenwire.coordinator.fleet.submission import Submission


def bound_with(sizes: Mapping[str, int], weights: Mapping[str, int] | None = None) -> FairBound:
    """Return a bound on sequences, with so many requests of one sequence of each tenant."""
    bound = FairBound(lambda entry: entry.sequences)
    for tenant, size in sizes.items():
        for number in range(size):
            bound.add(entry_of(tenant, number, weight=(weights or {}).get(tenant, 1)))
    return bound


def entry_of(
    tenant: str, number: int = 0, n: int = 1, weight: int = 1, resumed: bool = False, joins: bool = False
) -> QueuedRequest:
    """Return a request of a tenant."""
    placement = Placement(tenant=tenant, weight=weight, resumed=resumed, joins=joins)
    return QueuedRequest("m", Submission(f"{tenant}-{number}"), [Listener() for _ in range(n)], placement)


def refused_for(bound: FairBound, tenant: str, limit: int) -> Iterator[str]:
    """Remove what is refused for a tenant that was admitted; yield the names."""
    while (entry := bound.to_refuse(Placement(tenant=tenant), limit)) is not None:
        bound.remove(entry)
        yield entry.submission.request_id


def admits(bound: FairBound, tenant: str, size: int, limit: int, weight: int = 1) -> bool:
    """Return whether a tenant's next request is admitted."""
    return bound.admits(Placement(tenant=tenant, weight=weight), size, limit)


def test_what_fits_is_admitted_and_nothing_refused() -> None:
    """Whoever takes how much."""
    bound = bound_with({"greedy": 14, "small": 1})

    assert admits(bound, "greedy", 1, 16)
    assert not admits(bound, "greedy", 2, 16)
    assert list(refused_for(bound, "greedy", 15)) == []


def test_one_below_its_share_is_admitted_to_a_full_queue() -> None:
    """Up to an equal share, and one with the largest share is not."""
    bound = bound_with({"greedy": 15, "small": 1})

    assert not admits(bound, "greedy", 1, 16)
    assert [admits(bound, "small", size, 16) for size in (1, 7, 8)] == [True, True, False]
    assert [admits(bound, "third", size, 16) for size in (1, 7, 8)] == [True, True, False]


def test_what_a_tenant_leaves_of_its_share_is_for_all_others() -> None:
    """Two thirds of sixteen places are for two that want more, though a third one is there."""
    bound = bound_with({"greedy": 13, "bursty": 2, "small": 1})

    assert [admits(bound, "bursty", size, 16) for size in (5, 6)] == [True, False]


def test_shares_are_by_weight() -> None:
    """With three times the weight a tenant has three quarters beside another one."""
    bound = bound_with({"greedy": 16})

    assert [admits(bound, "heavy", size, 16, weight=3) for size in (12, 13)] == [True, False]
    bound = bound_with({"heavy": 16}, {"heavy": 3})
    assert [admits(bound, "light", size, 16) for size in (4, 5)] == [True, False]


def test_one_that_is_larger_than_the_bound_is_admitted_alone() -> None:
    """Else it never would be."""
    assert admits(bound_with({}), "any", 100, 16)
    assert not admits(bound_with({"any": 1}), "any", 100, 16)
    assert not admits(bound_with({"other": 1}), "any", 100, 16)


def test_the_newest_of_the_largest_is_refused_until_the_bound_holds() -> None:
    """One after the other, of whoever takes most at that time."""
    bound = bound_with({"greedy": 9, "bursty": 8})
    bound.add(entry_of("small", n=2))

    assert list(refused_for(bound, "small", 16)) == ["greedy-8", "greedy-7", "bursty-7"]
    assert bound.total == 16


def test_the_largest_is_so_by_its_weight() -> None:
    """Ten of a tenant with weight 4 are fewer than three of one with weight 1."""
    bound = bound_with({"heavy": 10, "light": 3}, {"heavy": 4})
    bound.add(entry_of("new"))

    assert list(refused_for(bound, "new", 13)) == ["light-2"]


def test_a_heavy_tenant_may_take_more_without_being_the_largest() -> None:
    """Its eight are two of a tenant with weight 1."""
    bound = bound_with({"heavy": 8, "light": 2}, {"heavy": 4})

    assert list(refused_for(bound, "light", 9)) == []


def test_the_weight_of_a_tenant_may_change() -> None:
    """That of its newest request counts, as when a file of keys was changed."""
    bound = bound_with({"other": 4, "promoted": 4})
    bound.add(entry_of("promoted", weight=4))
    bound.add(entry_of("new"))

    assert list(refused_for(bound, "new", 9)) == ["other-3"]


def test_nobody_is_refused_for_a_tenant_that_takes_as_much() -> None:
    """The bound is exceeded in this case, which comes of requests that are never refused."""
    bound = bound_with({"one": 2, "other": 2})
    bound.add(entry_of("resumed", n=3, resumed=True))

    assert list(refused_for(bound, "one", 5)) == []


@pytest.mark.parametrize("resumed", [True, False])
def test_begun_requests_are_never_refused(resumed: bool) -> None:
    """They count, but one that was not begun goes, or none."""
    bound = bound_with({"greedy": 1})
    for number in range(5):
        bound.add(entry_of("greedy", 10 + number, resumed=resumed, joins=not resumed))
    bound.add(entry_of("small"))

    assert list(refused_for(bound, "small", 3)) == ["greedy-0"]
    assert bound.total == 6


def test_what_left_takes_nothing() -> None:
    """Nor does its tenant."""
    bound = FairBound(lambda entry: entry.sequences)
    entries = [entry_of("any", number) for number in range(2)]
    for entry in entries:
        bound.add(entry)
    for entry in entries:
        bound.remove(entry)

    assert bound.total == 0
    assert not bound._parts
    assert bound.fair_total(Placement(tenant="other"), 3) == 3


def test_a_tenant_waits_for_what_starts_before_its_own_at_fair_shares() -> None:
    """Of a larger tenant as much as of its own, of a smaller one all."""
    bound = bound_with({"greedy": 14, "small": 1})

    assert bound.fair_total(Placement(tenant="greedy"), 1) == 16
    assert bound.fair_total(Placement(tenant="small"), 1) == 4
    assert bound.fair_total(Placement(tenant="new"), 1) == 3
    assert bound.fair_total(Placement(tenant="new", weight=2), 3) == 3 + 2 + 1


@pytest.mark.parametrize("sequences", [1, 3])
def test_a_request_leaves_the_bound_as_large_as_it_came(sequences: int) -> None:
    """Else the bound would shrink or grow for good."""
    bound = FairBound(lambda entry: entry.sequences)
    entry = entry_of("one", n=2)
    bound.add(entry)
    entry.listeners = [Listener() for _ in range(sequences)]

    with pytest.raises(AssertionError):
        bound.remove(entry)
