"""Prints results: failures, rates, and what the runs reached."""

import sys

from tests.simulation.run import Result
from tests.simulation.runner import Campaign
from tests.simulation.script import FAULTS, OPERATIONS, STORE_EVENTS, UPGRADES

_SHOWN_VIOLATIONS = 6
_OUTCOMES = (
    *(
        "resumed",
        "replayed",
        "poison",
        "failed",
        "chat continued",
        "chat continued by exact ids",
        "chat continued by ids that differ from the text's",
        "chat continued by another coordinator",
        "chat continued by another coordinator by exact ids",
        "exact turn due by the same coordinator",
        "exact turn due through the store",
        "choice moved to another placement",
    ),
    *("connection cut", "writer blocked", "slow reader"),
    *("store asked", "store asked in vain", "store asked, and skipped"),
    *("store answered with an error", "entry of the store evicted"),
    *("rejected: full", "rejected: timeout", "rejected: no_worker", "rejected: unauthorized"),
    *("rejected: requests at a time", "rejected: requests per minute", "rejected: tokens per minute"),
    *("queued", "contest of tenants", "reply of several weight versions"),
    *("held up", "half of the bound waited: queue", "half of the bound waited: worker"),
    *("half of the bound waited: between workers", "half of the bound waited: handled"),
    *("adapter loaded", "adapter unloaded", "adapter asked for", "adapter's stream moved"),
)
"""What a campaign should have met, besides each kind of event."""


def print_result(result: Result) -> None:
    """Print one run and what it violated."""
    sys.stdout.write(f"seed {result.seed}: {result.virtual_s:.1f} virtual s, {result.callbacks} callbacks, ")
    sys.stdout.write(f"trace {result.trace}, {dict(result.endings)}\n")
    for violation in result.violations[:_SHOWN_VIOLATIONS]:
        sys.stdout.write(f"    {violation}\n")
    sys.stdout.flush()


def print_summary(campaign: Campaign) -> None:
    """Print the rate, how requests ended, and how often everything happened; name what never did."""
    seconds = campaign.seconds
    sys.stdout.write(f"\n{campaign.runs} runs, {campaign.failed} failed, {seconds:.0f} s, ")
    sys.stdout.write(f"{campaign.runs / seconds:.2f} a second, {campaign.virtual_s / seconds:.0f} virtual s each\n")
    sys.stdout.write(f"{campaign.callbacks} callbacks, {campaign.endings.total()} requests\n\n")
    names = [*(f"event {kind}" for kind in (*FAULTS, *OPERATIONS, *UPGRADES, *STORE_EVENTS)), *_OUTCOMES]
    width = max(map(len, names))
    sys.stdout.write(f"{'what happened':{width}}  times  in runs\n")
    for name in [*names, *sorted(set(campaign.reached) - set(names))]:
        mark = "" if campaign.reached_in[name] else "  NEVER"
        sys.stdout.write(f"{name:{width}}  {campaign.reached[name]:5}  {campaign.reached_in[name]:5}{mark}\n")
    sys.stdout.flush()
