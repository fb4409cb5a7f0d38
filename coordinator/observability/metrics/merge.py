"""One set of families out of those of several processes."""

from collections.abc import Iterable, Sequence

from prometheus_client.core import Metric

_SEEN_BY_ALL = ("tokenwire_worker_", "tokenwire_build_info", "process_start_time_seconds")
"""Families that every process knows alike: not to be added up."""
_OWN = frozenset({"tokenwire_worker_open_slots"})

Key = tuple[str, tuple[tuple[str, str], ...]]


def merged(processes: Sequence[Iterable[Metric]]) -> list[Metric]:
    """Add up what processes count; of what all of them see, take the highest."""
    families: dict[str, Metric] = {}
    values: dict[str, dict[Key, float]] = {}
    for process in processes:
        for family in process:
            families.setdefault(family.name, family)
            known = values.setdefault(family.name, {})
            combine = max if _is_seen_by_all(family.name) else float.__add__
            for sample in family.samples:
                if sample.name.endswith("_created"):
                    continue
                key = sample.name, tuple(sample.labels.items())
                value = float(sample.value)
                known[key] = combine(known[key], value) if key in known else value
    return [_family(families[name], samples) for name, samples in values.items()]


def _is_seen_by_all(name: str) -> bool:
    return name.startswith(_SEEN_BY_ALL) and name not in _OWN


def _family(like: Metric, samples: dict[Key, float]) -> Metric:
    family = Metric(like.name, like.documentation, like.type)
    for (name, labels), value in samples.items():
        family.add_sample(name, dict(labels), value)
    return family
