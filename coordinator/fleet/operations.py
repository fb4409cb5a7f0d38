"""What admin operations set, by what is desired before them: their records, without model and epoch."""

from collections.abc import Collection, Mapping
from typing import Any

from tokenwire.coordinator.fleet.operation_trust import pause_of
from tokenwire.v1 import inference_pb2 as pb

_MEMORY_PARTS = frozenset({"weights", "kv_cache"})
"""An engine that has all of them back runs."""


def pause(desired: pb.ServingState) -> pb.Operation:
    """Pause generation; an engine that sleeps goes on sleeping."""
    paused = pause_of(desired)
    paused.paused = True
    return pb.Operation(pause=paused)


def resume() -> pb.Operation:
    """Resume generation."""
    return pb.Operation(pause=pb.PauseState())


def sleep(level: int) -> pb.Operation:
    """Pause, and free memory."""
    return pb.Operation(pause=pb.PauseState(paused=True, sleeping=True, sleep_level=level))


def wake_up(desired: pb.ServingState, tags: Collection[str]) -> pb.Operation:
    """Get memory back, and resume with all of it."""
    asleep = desired.sleeping and desired.sleep_level > 0
    parts = {*desired.awake_parts, *tags}
    if not asleep or not tags or parts >= _MEMORY_PARTS:
        return resume()
    woken = pause_of(desired)
    woken.awake_parts[:] = sorted(parts)
    return pb.Operation(pause=woken)


def load_weights(epoch: int, path: str, version: str) -> pb.Operation:
    """Use the weights of a directory; "" are those that workers started with."""
    weights = pb.Weights(epoch=epoch, path=path) if path else pb.Weights()
    return pb.Operation(weights=weights, weight_version=version)


def transfer(epoch: int, stage: str, arguments: Mapping[str, Any]) -> pb.Operation:
    """Use the weights that a transfer brings, and their label; other stages set nothing."""
    if stage == "update":
        return pb.Operation(weights=pb.Weights(epoch=epoch))
    version = arguments.get("weight_version") if stage == "finish" else None
    return pb.Operation() if version is None else pb.Operation(weight_version=str(version))
