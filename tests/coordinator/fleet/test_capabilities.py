"""What several engines can do is what each of them can."""

from tokenwire.coordinator.fleet.capabilities import common_capabilities
from tokenwire.v1 import inference_pb2 as pb

ALL = pb.EngineCapabilities(seeds=True, positional_seeds=True, batch_invariant=True)


def test_one_engine_that_cannot_is_enough() -> None:
    """A request may run on any of them, and move to any other."""
    assert common_capabilities([ALL, ALL]) == ALL
    for name in ("seeds", "positional_seeds", "batch_invariant"):
        limited = pb.EngineCapabilities()
        limited.CopyFrom(ALL)
        setattr(limited, name, False)
        assert common_capabilities([ALL, limited]) == limited


def test_without_engines_nothing_is_promised() -> None:
    """Workers that come later may be of any kind."""
    assert common_capabilities([]) == pb.EngineCapabilities()
