"""`python -m tests.simulation.put_back`: puts real faults of this project's past back, one by one, and looks for them.

Those without a commit never were in it: the first takes away what the project is for, the others are of kinds that a
check was made for. Each fault is a replacement in a copy of the source; the number of runs until one fails says how
well simulation finds faults of its kind.
"""

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.marked_part import MarkedPart
from tests.simulation.elsewhere import first_violation, ignored

ROOT = Path(__file__).resolve().parents[2]
_COPIED = ("coordinator", "worker", "tokenwire", "proto", "tests")
_HEAD = "| fault | mended in | found after | by |\n|---|---|---|---|\n"


@dataclass(frozen=True, slots=True)
class PastFault:
    """A fault that was in the project once."""

    story: str
    commit: str
    """The one that mended it; empty: the project never had it."""
    path: str
    now: str
    """What the source says today; it must be there exactly once."""
    then: str
    """What makes the fault again."""


FAULTS = (
    PastFault(
        "no sequence is resumed: failover is off",
        "",
        "coordinator/fleet/failover/failover.py",
        "        if not self._settings.attempts and not submission.sampled:",
        "        if True:",
    ),
    PastFault(
        "slots of a session that ends are not aborted",
        "",
        "worker/services/session.py",
        "        await self._stop_preparing()\n        await self.abort_all()\n",
        "        await self._stop_preparing()\n",
    ),
    PastFault(
        "siblings of a sequence that leaves a draining worker are given up",
        "bddd1d1",
        "coordinator/fleet/failover/failover.py",
        "together = [sequence] if sequence.handle is not None else request.running_on(session)",
        "together = [sequence]",
    ),
    PastFault(
        "an operation whose state was adopted first is skipped",
        "ad76550",
        "worker/state/serving_state.py",
        "        try:\n            result = await verb()\n",
        "        if epoch and epoch == newest:\n            return None  # type: ignore[return-value]\n"
        "        try:\n            result = await verb()\n",
    ),
    PastFault(
        "an abort during a replay counts as a divergence",
        "10fd8ce",
        "coordinator/fleet/failover/replay.py",
        "        if finish.reason in _ORDERED:\n",
        "        if False:\n",
    ),
    PastFault(
        "a worker process that is gone stays in the router",
        "10fd8ce",
        "coordinator/fleet/routing.py",
        "                    self._last_turn.pop(known[0], None)\n",
        "                    pass\n",
    ),
    PastFault(
        "an aborted request whose worker is lost goes on elsewhere",
        "43f17f0",
        "coordinator/fleet/failover/failover.py",
        "            request.aborted = True\n",
        "            pass\n",
    ),
    PastFault(
        "two cut connections stop a young request as poison",
        "43f17f0",
        "coordinator/fleet/pool.py",
        "return next((session.alive for session in self.sessions if session.instance_id == instance_id), False)",
        "return False",
    ),
    PastFault(
        "a request that was aborted before it is resumed runs all the same",
        "00c4f30",
        "worker/services/session.py",
        "        if self._host.was_aborted(submit):\n",
        "        if False:\n",
    ),
    PastFault(
        "sequences of a request share one seed when they are resumed",
        "9d65c2d",
        "coordinator/fleet/failover/recovery.py",
        "        start=index,\n",
        "",
    ),
    PastFault(
        "a lost sequence that waits in the queue is counted against its bound",
        "f47cdc8",
        "coordinator/fleet/admission/queue.py",
        "        if not entry.may_be_refused:\n",
        "        if placement.joins or entry.parts:\n",
    ),
    PastFault(
        "sequences that a draining worker hands back end as aborted",
        "f47cdc8",
        "worker/server.py",
        "            self._handing_back = True\n",
        "            pass\n",
    ),
    PastFault(
        "a pause that a newer resume has ended puts its own epoch back",
        "cb66a07",
        "worker/state/serving_state.py",
        "            if self._state.epoch > newest:",
        "            if False:",
    ),
    PastFault(
        "fields of a newer protocol are drift that nothing can mend",
        "127fb61",
        "coordinator/fleet/desired_state.py",
        "    shared.DiscardUnknownFields()\n",
        "",
    ),
    PastFault(
        "a connection to the store that was closed while idle makes it seem broken",
        "818a2b0",
        "coordinator/shared_redis.py",
        "retry=Retry(NoBackoff(), 1, (RedisConnectionError,)),",
        "retry=Retry(NoBackoff(), 0),",
    ),
    PastFault(
        "requests that leave the queue count against their tenant",
        "d75baf3",
        "coordinator/fleet/admission/fair_queue.py",
        "            entry.share.remove(entry.sequences)\n",
        "            if entry.listeners:\n                entry.share.start(entry.tokens(entry.sequences))\n"
        "            entry.share.remove(entry.sequences)\n",
    ),
    PastFault(
        "a reply goes on at a worker with other weights",
        "7ac1e83",
        "tokenwire/protocol/model_revision.py",
        "        return self == other or (\n",
        "        return True or (\n",
    ),
    PastFault(
        "a request that is resumed loses its temperature",
        "",
        "coordinator/fleet/failover/recovery.py",
        "    if params.min_tokens:\n",
        '    params.ClearField("temperature")\n    if params.min_tokens:\n',
    ),
    PastFault(
        "a tenant that was idle may catch up on what it left to others",
        "",
        "coordinator/fleet/admission/shares.py",
        "            self.tag = max(shares._virtual_time, self.tag)\n        shares.waiting",
        "            pass\n        shares.waiting",
    ),
    PastFault(
        "frames of other weights are merged",
        "",
        "coordinator/fleet/transport/paced.py",
        "            and frame.weight_version == self._frames[0].weight_version\n",
        "",
    ),
)


def main() -> int:
    """Look for each fault; return the exit code: 1 if one was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.put_back", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="most runs for each fault (default: 2000)")
    parser.add_argument("--only", default="", help="only faults with this in their story")
    parser.add_argument("--document", type=Path, help="write the table into this file")
    arguments = parser.parse_args()
    rows, missed = [], 0
    sys.stdout.write(_HEAD)
    for fault in FAULTS:
        if arguments.only in fault.story:
            found = look_for(fault, arguments.seeds)
            missed += found is None
            after, by = ("not found", "") if found is None else found
            rows.append(f"| {fault.story} | {fault.commit} | {after} | {by} |\n")
            sys.stdout.write(rows[-1])
            sys.stdout.flush()
    if arguments.document is not None:
        MarkedPart("put back").write(arguments.document, _HEAD + "".join(rows))
    return 1 if missed else 0


def look_for(fault: PastFault, seeds: int) -> tuple[str, str] | None:
    """Return after how many runs a fault was found, and the first violation; None: in none of them.

    Raises RuntimeError if that run fails without the fault, too.
    """
    with tempfile.TemporaryDirectory(prefix="put-back-") as folder:
        copy = Path(folder)
        for name in _COPIED:
            shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
        put_back(fault, copy)
        found = first_violation(copy, seeds, processes=2)
    if found is None:
        return None
    if control := first_violation(ROOT, 1, first=found.seed):
        raise RuntimeError(f"seed {found.seed} fails without any fault: {control.what}")
    return f"{found.seed + 1}", _shortened(found.what)


def put_back(fault: PastFault, tree: Path) -> None:
    """Make a fault again in a copy of the source.

    Raises ValueError if the source says something else by now.
    """
    path = tree / fault.path
    text = path.read_text()
    if text.count(fault.now) != 1:
        raise ValueError(f"{fault.path} has {text.count(fault.now)} times: {fault.now}")
    path.write_text(text.replace(fault.now, fault.then))


def _shortened(violation: str) -> str:
    text = violation.replace("|", "/")
    return text if len(text) <= 90 else text[:90] + " …"


if __name__ == "__main__":
    sys.exit(main())
