"""What several engines can do alike."""

from collections.abc import Iterable

from tokenwire.v1 import inference_pb2 as pb


def common_capabilities(engines: Iterable[pb.EngineCapabilities]) -> pb.EngineCapabilities:
    """Return what all engines can; nothing where there are none."""
    known = list(engines)
    return pb.EngineCapabilities(
        seeds=bool(known) and all(each.seeds for each in known),
        positional_seeds=bool(known) and all(each.positional_seeds for each in known),
        batch_invariant=bool(known) and all(each.batch_invariant for each in known),
    )
