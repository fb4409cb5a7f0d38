"""The chart's errors for invalid values, its notes, and its options."""

from typing import Any

import pytest

from tests.deploy.cases import POOL, SWITCHES
from tests.deploy.rendering import chart_error, pod_templates, render, render_texts


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({}, "name at least one pool"),
        ({"workers": {"pool": {"modle": "x"}}}, "modle"),
        ({"workers": {"Pool": {}}}, "Pool"),
        ({"workers": [{"model": "x"}]}, "workers"),
        ({"workers": POOL, "coordinator": {"image": {"tag": "latest"}}}, "tag"),
        ({"workers": POOL, "coordinator": {"apiKeys": ["sk-1234"]}}, "apiKeys"),
        ({"workers": POOL, "coordinator": {"apiKey": "sk-1234"}}, "apiKey"),
        ({"workers": {"pool": {"hubToken": "hf_1234"}}}, "hubToken"),
        ({"workers": {"pool": {"modelCache": {"type": "existingClaim"}}}}, "claim is missing"),
        ({"workers": {"pool": {"multiNode": {"nodes": 2}}}}, "needs a model"),
        ({"workers": {"pool": {"autoscaling": {"minReplicas": 9}}}}, "minReplicas is above maxReplicas"),
        ({"workers": POOL, "coordinator": {"httpRoute": {"enabled": True}}}, "which gateway?"),
        ({"workers": POOL, "coordinator": {"tls": {"certManager": {"enabled": True}}}}, "issuerRef.name is missing"),
        (
            {
                "workers": POOL,
                "coordinator": {
                    "tls": {
                        "existingSecret": "one",
                        "certManager": {"enabled": True, "issuerRef": {"name": "authority"}},
                    }
                },
            },
            "not both",
        ),
        ({"workers": POOL, "peerAuth": {"tls": {"enabled": True, "workerSecret": "one"}}}, "name both secrets"),
        ({"workers": POOL, "monitoring": {"interval": "often"}}, "interval"),
        ({"workers": POOL, "coordinator": {"options": {"max-queu": 5}}}, "max-queu"),
        ({"workers": POOL, "coordinator": {"options": {"max-queue": "5"}}}, "max-queue"),
        ({"workers": POOL, "coordinator": {"options": {"max-queue": -5}}}, "max-queue"),
        ({"workers": POOL, "coordinator": {"options": {"routing": "best"}}}, "routing"),
        ({"workers": POOL, "coordinator": {"options": {"allowed-host": "one.example.com"}}}, "allowed-host"),
        ({"workers": POOL, "coordinator": {"options": {"port": 80}}}, "port"),
        ({"workers": POOL, "coordinator": {"options": {"siblings-dir": "/tmp"}}}, "siblings-dir"),
        ({"workers": {"pool": {"options": {"routing": "load"}}}}, "routing"),
        ({"workers": {"pool": {"engine": "sglang"}}}, "engine"),
        ({"workers": POOL, "coordinator": {"options": {"queue-timeout": 0}}}, "queue-timeout"),
        ({"workers": POOL, "coordinator": {"options": {"max-media-mb": 0}}}, "max-media-mb"),
        ({"workers": POOL, "networkPolicy": {"egress": {"enabled": True}}}, "apiServer is missing"),
        ({"workers": POOL, "networkPolicy": {"egress": {"apiServer": ["api.example.com"]}}}, "apiServer"),
    ],
)
def test_wrong_values_are_rejected(values: dict[str, Any], named: str) -> None:
    """Before anything is installed, by name."""
    assert named in chart_error(values)


def test_notes_have_a_command_to_paste() -> None:
    """For the configured scheme and keys."""
    plain = render_texts({"workers": POOL})["NOTES.txt"]
    assert "curl http://127.0.0.1:8000/v1/chat/completions" in plain
    assert "pool: org/model" in plain
    assert "anyone who reaches the service may use it" in plain
    secured = render_texts(
        {"workers": POOL, "coordinator": {"tls": {"existingSecret": "door"}, "apiKeys": {"existingSecret": "keys"}}}
    )["NOTES.txt"]
    assert "curl --insecure https://127.0.0.1:8000/v1/chat/completions" in secured
    assert '-H "Authorization: Bearer $API_KEY"' in secured


def test_options_become_arguments() -> None:
    """A map of options becomes command line arguments: numbers in full, switches only if true."""
    (coordinator,) = (each for name, each in pod_templates(render(SWITCHES["coordinator"])) if name == "coordinator")

    arguments = coordinator["spec"]["containers"][0]["args"]

    assert {
        "--max-queue=12000000",
        "--history-ttl=0.5",
        "--no-request-log",
        "--allowed-host=one.example.com",
        "--allowed-host=two.example.com",
        '--default-chat-template-kwargs={"enable_thinking": false}',
    } <= set(arguments)
    assert not [argument for argument in arguments if "log-prompts" in argument]


def test_options_of_a_pool_are_merged_with_those_of_all() -> None:
    """Each may be overridden; the others stay."""
    values = {
        "workerDefaults": {"options": {"sim-seed": 5, "no-warm-up": True}},
        "workers": {"pool": {"options": {"sim-seed": 6}}},
    }
    (worker,) = (each for name, each in pod_templates(render(values)) if name == "worker")

    assert {"--sim-seed=6", "--no-warm-up"} <= set(worker["spec"]["containers"][0]["args"])
