"""What a worker may not send as its metrics: a scrape is readable all the same."""

import random
from collections import Counter
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.coordinator.observability.metrics.test_metrics import collector
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.observability.metrics.metrics import Metrics
from tokenwire.coordinator.observability.metrics.relay import Relay
from tokenwire.v1 import control_pb2 as pb

TYPICAL = """\
# HELP vllm:num_requests_running Running.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m {1}"} 3.0
# HELP vllm:prompt_tokens_total Prompts.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total 9.0
# HELP vllm:prompt_tokens_created Prompts.
# TYPE vllm:prompt_tokens_created gauge
vllm:prompt_tokens_created 1.7e9
# HELP vllm:ttft_seconds First.
# TYPE vllm:ttft_seconds histogram
vllm:ttft_seconds_bucket{le="+Inf"} 1.0
vllm:ttft_seconds_count 1.0
vllm:ttft_seconds_sum 1.0
# HELP process_open_fds Files.
# TYPE process_open_fds gauge
process_open_fds 7.0
"""
GOOD = "# HELP vllm:good Good.\n# TYPE vllm:good gauge\nvllm:good 1.0\n"
_GAUGE = "# TYPE vllm:x gauge\n"
HOSTILE = {
    "a label that does not end": _GAUGE + 'vllm:x{a="1} 1\n',
    "a value that is no number": _GAUGE + "vllm:x one\n",
    "a number with an underscore": _GAUGE + "vllm:x 1_0\n",
    "no value": _GAUGE + "vllm:x\n",
    "a second sample in the line": _GAUGE + "vllm:x 1 2 3\n",
    "a carriage return": _GAUGE + "vllm:x 1\rvllm:y 2\n",
    "a control character": _GAUGE + 'vllm:x{a="\x1b[2J"} 1\n',
    "a line separator": _GAUGE + 'vllm:x{a="\u2028"} 1\n',
    "a lone surrogate": _GAUGE + 'vllm:x{a="\ud800"} 1\n',
    "an unknown escape": _GAUGE + r'vllm:x{a="\x"} 1' + "\n",
    "the worker's label": _GAUGE + 'vllm:x{worker="b:1"} 1\n',
    "a reserved label": _GAUGE + 'vllm:x{__name__="tokenwire_requests_total"} 1\n',
    "a label twice": _GAUGE + 'vllm:x{a="1",a="2"} 1\n',
    "a name of the coordinator's": _GAUGE + "tokenwire_requests_total 7\n",
    "another family's sample": _GAUGE + "vllm:y 1\n",
    "a long name": f"# TYPE vllm:{'x' * 200} gauge\nvllm:{'x' * 200} 1\n",
    "a long label": _GAUGE + f'vllm:x{{a="{"x" * 5000}"}} 1\n',
    "many labels": _GAUGE + "vllm:x{" + ",".join(f'a{i}="1"' for i in range(65)) + "} 1\n",
    "a type in no charset": "# TYPE vllm:\u00e9 gauge\n",
    "a long text": "x" * (1 << 21),
}
"""Texts of a worker, each with something that must not be relayed."""


def worker_with_metrics(address: str, text: str) -> WorkerSession:
    """A session whose worker responds with these metrics."""

    async def get_metrics(request: pb.GetMetricsRequest, timeout: float) -> object:
        return SimpleNamespace(text=text)

    return cast("WorkerSession", SimpleNamespace(address=address, control=SimpleNamespace(GetMetrics=get_metrics)))


async def _scraped(*sessions: WorkerSession) -> tuple[dict[str, Metric], int]:
    """Return the families of a whole scrape, by name, and the length of its text."""
    text = await Metrics(collector(), Relay(lambda: sessions)).text()
    families = list(text_string_to_metric_families(text.decode()))
    assert max(Counter(family.name for family in families).values()) == 1
    return {family.name: family for family in families}, len(text)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_scrape_is_readable_whatever_a_worker_sends(text: str) -> None:
    """With the coordinator's own families, and those of another worker."""
    families, _ = await _scraped(worker_with_metrics("a:1", text + GOOD), worker_with_metrics("b:1", GOOD))
    assert families["vllm:good"].type == "gauge"
    assert {"tokenwire_requests", "tokenwire_failover_sequences", "vllm:good"} <= families.keys()
    assert "tokenwire_requests_total" not in families


async def test_a_scrape_is_readable_after_any_damage() -> None:
    """A worker's text with bytes removed, repeated and replaced, by seed."""
    for seed in range(200):
        chance = random.Random(seed)
        text = TYPICAL * 2
        for _ in range(chance.randrange(1, 12)):
            at, length = chance.randrange(len(text)), chance.randrange(1, 30)
            filling = chance.choice(("", '"', "\\", "\n", "{", "# TYPE ", "\r", "\x85", text[at : at + length] * 2))
            text = text[:at] + filling + text[at + length :]
        families, _ = await _scraped(worker_with_metrics("a:1", text), worker_with_metrics("b:1", TYPICAL))
        relayed = [each for each in families.values() if each.name.startswith("vllm:")]
        assert all(sample.name.startswith("vllm:") for each in relayed for sample in each.samples), seed
        series = Counter((each.name, *sorted(each.labels.items())) for family in relayed for each in family.samples)
        assert max(series.values()) == 1, seed
        assert {"tokenwire_requests", "vllm:prompt_tokens"} <= families.keys(), seed


async def test_a_worker_has_a_limited_number_of_samples() -> None:
    """The first ones are relayed; those of other workers all are."""
    many = _GAUGE + "".join(f'vllm:x{{a="{i}"}} 1\n' for i in range(9000))
    families, length = await _scraped(worker_with_metrics("a:1", many), worker_with_metrics("b:1", TYPICAL))
    assert len(families["vllm:x"].samples) == 2000
    assert length < 200_000
    relay = Relay(lambda: [worker_with_metrics("a:1", many)])
    await relay.text()
    assert [sample.value for family in relay.collect() for sample in family.samples] == [1]
    assert "vllm:prompt_tokens" in families


async def test_a_series_is_relayed_once() -> None:
    """Also if its labels have another order, or one has no value; Prometheus rejects scrapes with a series twice."""
    text = _GAUGE + 'vllm:x{a="1",b="2"} 1\nvllm:x{b="2",a="1"} 2\n' + _GAUGE + 'vllm:x{a="1",b="2"} 3\n'
    text += 'vllm:x{b="2",c="",a="1"} 4\n'
    families, _ = await _scraped(worker_with_metrics("a:1", text))
    assert [sample.value for sample in families["vllm:x"].samples] == [1]


@pytest.mark.parametrize(
    ("sent", "relayed"),
    [
        ("-NaN", "NaN"),
        ("+NaN", "NaN"),
        ("1e999", "+Inf"),
        ("-1e999", "-Inf"),
        ("Inf", "+Inf"),
        ("1e-999", "0.0"),
        ("0001.", "1.0"),
        ("9" * 400, "+Inf"),
        ("1e+3", "1000.0"),
        ("123456789012", "1.23456789012e+11"),
    ],
)
async def test_values_are_written_as_prometheus_reads_them(sent: str, relayed: str) -> None:
    """It would reject a scrape that has a number with a NaN's sign, or one beyond what a float holds."""
    relay = Relay(lambda: [worker_with_metrics("a:1", f"{_GAUGE}vllm:x {sent}\n")])
    assert (await relay.text()).decode().splitlines()[-1] == f'vllm:x{{worker="a:1"}} {relayed}'


@pytest.mark.parametrize("rest", ["1 1395066363000", '1 # {a="b"} 1', "0x1p-2", "1_000", "infinity", "\u0661"])
async def test_timestamps_exemplars_and_other_numbers_are_not_relayed(rest: str) -> None:
    """What Python's numbers or OpenMetrics have, and Prometheus' text format does not."""
    relay = Relay(lambda: [worker_with_metrics("a:1", f"{_GAUGE}vllm:x {rest}\n")])
    assert await relay.text() == b""


_BOTH = "# TYPE vllm:{0} gauge\nvllm:{0} 1\n# TYPE vllm:{0}_total counter\nvllm:{0}_total 1\n".format("good")
_EXCHANGED = _BOTH.replace(" gauge", " G").replace(" counter", " gauge").replace(" G", " counter")


@pytest.mark.parametrize("honest", [["b:1"], ["b:1", "c:1", "d:1"]], ids=["one", "most"])
@pytest.mark.parametrize("place", [0, 1], ids=["first", "second"])
async def test_a_worker_with_other_types_hides_no_other(honest: list[str], place: int) -> None:
    """Wherever it is listed: most decide, and of two the names that vLLM gives; its own samples are left out."""
    workers = [worker_with_metrics(address, _BOTH) for address in honest]
    workers.insert(place, worker_with_metrics("a:1", _EXCHANGED))

    relay = Relay(lambda: workers)
    lines = (await relay.text()).decode().splitlines()

    assert [line for line in lines if line.startswith("# TYPE")] == [
        "# TYPE vllm:good gauge",
        "# TYPE vllm:good_total counter",
    ]
    assert Counter(line for line in lines if not line.startswith("#")) == Counter(
        f'vllm:{name}{{worker="{address}"}} 1.0' for name in ("good", "good_total") for address in honest
    )
    rejected = {sample.labels["worker"]: sample.value for family in relay.collect() for sample in family.samples}
    assert rejected == {"a:1": 2, **dict.fromkeys(honest, 0)}


async def test_most_workers_decide_a_type_against_its_name() -> None:
    """As of an engine whose counters have other names."""
    text = "# TYPE vllm:good counter\nvllm:good 1\n"
    workers = [worker_with_metrics("a:1", GOOD), *(worker_with_metrics(each, text) for each in ("b:1", "c:1"))]
    lines = (await Relay(lambda: workers).text()).decode().splitlines()

    assert lines[1:] == ["# TYPE vllm:good counter", 'vllm:good{worker="b:1"} 1.0', 'vllm:good{worker="c:1"} 1.0']
