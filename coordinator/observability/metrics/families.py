"""Metric families as JSON, in which sibling processes exchange them."""

import json
from collections.abc import Iterable

from prometheus_client.core import Metric


def dumped(families: Iterable[Metric]) -> bytes:
    """Serialize families as JSON."""
    return json.dumps(
        [
            (family.name, family.documentation, family.type, [sample[:3] for sample in family.samples])
            for family in families
        ]
    ).encode()


def loaded(data: bytes) -> list[Metric]:
    """Parse the output of `dumped`."""
    families = []
    for name, text, kind, samples in json.loads(data):
        family = Metric(name, text, kind)
        for sample, labels, value in samples:
            family.add_sample(sample, labels, value)
        families.append(family)
    return families
