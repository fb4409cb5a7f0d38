"""Capabilities that several engines have in common, and those that a request needs."""

from collections.abc import Iterable

from tokenwire.v1 import inference_pb2 as pb


def common_capabilities(engines: Iterable[pb.EngineCapabilities]) -> pb.EngineCapabilities:
    """Return the capabilities common to all engines; none without engines."""
    each_engine = list(engines)
    return pb.EngineCapabilities(
        seeds=bool(each_engine) and all(each.seeds for each in each_engine),
        positional_seeds=bool(each_engine) and all(each.positional_seeds for each in each_engine),
        batch_invariant=bool(each_engine) and all(each.batch_invariant for each in each_engine),
    )


def unsupported_by(engine: pb.EngineCapabilities, params: pb.SamplingParams) -> list[str]:
    """Return the parameters of a request that an engine does not have."""
    lacking = engine.unsupported_sampling_params
    return [field.name for field, _ in params.ListFields() if field.name in lacking]
