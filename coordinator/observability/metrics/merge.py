"""Merges the metric families of several processes into one set."""

from collections.abc import Iterable, Sequence

from prometheus_client.core import Metric

_SHARED = ("tokenwire_worker_", "tokenwire_build_info", "process_start_time_seconds")
"""Prefixes of families that every process exports alike: not summed."""
_OWN = frozenset({"tokenwire_worker_open_slots"})

Key = tuple[str, tuple[tuple[str, str], ...]]


def merged(processes: Sequence[Iterable[Metric]]) -> list[Metric]:
    """Sum the samples of all processes; of shared families, take the maximum."""
    families: dict[str, Metric] = {}
    values: dict[str, dict[Key, float]] = {}
    for process in processes:
        for family in process:
            families.setdefault(family.name, family)
            known = values.setdefault(family.name, {})
            combine = max if _is_shared(family.name) else float.__add__
            for sample in family.samples:
                if sample.name.endswith("_created"):
                    continue
                key = sample.name, tuple(sample.labels.items())
                value = float(sample.value)
                known[key] = combine(known[key], value) if key in known else value
    return [_family(families[name], samples) for name, samples in values.items()]


def _is_shared(name: str) -> bool:
    return name.startswith(_SHARED) and name not in _OWN


def _family(like: Metric, samples: dict[Key, float]) -> Metric:
    family = Metric(like.name, like.documentation, like.type)
    for (name, labels), value in samples.items():
        family.add_sample(name, dict(labels), value)
    return family
