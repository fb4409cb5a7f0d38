"""Settings of a coordinator that contradict each other are rejected at its start."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tokenwire.cli.click_options import build
from tokenwire.coordinator.api.responses.background import LOG_SHARE
from tokenwire.coordinator.api.trajectories.sessions import READING_FACTOR
from tokenwire.coordinator.auth.admin_key import AdminKey
from tokenwire.coordinator.auth.api_keys import AuthSettings
from tokenwire.coordinator.auth.settings import AdminSettings
from tokenwire.coordinator.history.prefix_watch import MAX_BYTES as PREFIX_WATCH_BYTES
from tokenwire.coordinator.media.store import NAMES_BYTES
from tokenwire.coordinator.response_store.settings import ResponseStoreSettings
from tokenwire.coordinator.settings import CoordinatorSettings, TemplateSettings
from tokenwire.coordinator.trajectories.index import MOST_BYTES as INDEXES_BYTES
from tokenwire.coordinator.trajectories.session_limit import RESERVE_BYTES
from tokenwire.coordinator.trajectories.settings import TrajectorySettings
from tokenwire.errors import InvalidRequest
from tokenwire.options import declared

WORKER = {"--worker": ("x:1",)}
CHART = Path(__file__).parents[2] / "deploy" / "k8s" / "tokenwire"
AT_REST_BYTES = 85 * 2**20
"""As `docs/guides/tuning.md` says."""


@pytest.mark.parametrize(
    ("workers", "words"),
    [((), "at least one worker"), (("nowhere",), "nowhere"), (("http://x:1",), "needs --tokenizer")],
)
def test_workers_are_addresses(workers: tuple[str, ...], words: str) -> None:
    """Plain vLLM servers do not send their tokenizer."""
    with pytest.raises(InvalidRequest) as rejected:
        CoordinatorSettings(workers)
    assert words in rejected.value.message


def test_a_plain_vllm_server_has_its_tokenizer_here(tmp_path: Path) -> None:
    """In a folder."""
    assert CoordinatorSettings(("http://x:1",), tokenizer=tmp_path).tokenizer == tmp_path


@pytest.mark.parametrize("routes", [AdminSettings(rl_routes=True), AdminSettings(lora_routes=True)])
def test_admin_routes_next_to_api_keys_need_a_key_of_their_own(tmp_path: Path, routes: AdminSettings) -> None:
    """Every tenant could change the weights otherwise."""
    (keys := tmp_path / "keys").write_text("tenant sesame\n")

    with pytest.raises(InvalidRequest, match="--admin-key-file"):
        CoordinatorSettings(("x:1",), auth=AuthSettings(keys), admin=routes)
    with_key = replace(routes, admin_key=AdminKey("open"))
    assert CoordinatorSettings(("x:1",), auth=AuthSettings(keys), admin=with_key).admin is with_key


def test_processes_share_stored_responses() -> None:
    """A request may reach a process that did not make the response."""
    alone, shared = (ResponseStoreSettings(enabled=True, store_url=url) for url in (None, "redis://host:1"))

    with pytest.raises(InvalidRequest, match="needs --responses-store"):
        CoordinatorSettings(("x:1",), processes=2, response_store=alone)
    assert CoordinatorSettings(("x:1",), response_store=alone).processes == 1
    assert CoordinatorSettings(("x:1",), processes=2, response_store=shared).response_store is shared


def test_a_template_is_a_file_or_its_text(tmp_path: Path) -> None:
    """Text has a brace; a file that cannot be read is named with the reason."""
    (path := tmp_path / "own.jinja").write_text("{{ messages }}")

    for given in (str(path), "{{ messages }}"):
        assert build(TemplateSettings, {"--chat-template": given}).source == "{{ messages }}"
    with pytest.raises(InvalidRequest, match="cannot read /nowhere: No such file"):
        build(TemplateSettings, {"--chat-template": "/nowhere"})


@pytest.mark.parametrize(("given", "words"), [("{", "is not JSON"), ("[1]", "must be a JSON object")])
def test_template_variables_are_a_json_object(given: str, words: str) -> None:
    """No text is an empty one."""
    name = "--default-chat-template-kwargs"

    assert build(TemplateSettings, {name: '{"a": 1}'}).default_kwargs == {"a": 1}
    assert build(TemplateSettings, {name: ""}).default_kwargs == {}
    with pytest.raises(InvalidRequest, match=words):
        build(TemplateSettings, {name: given})


def test_allowed_hosts_are_lower_case() -> None:
    """Names of hosts are compared without case."""
    assert build(CoordinatorSettings, {**WORKER, "--allowed-host": ("LLM.example",)}).allowed_hosts == ("llm.example",)


def test_proxies_are_addresses_and_networks() -> None:
    """Not everybody, and nothing that looks like an address and is none."""
    given = {**WORKER, "--forwarded-allow-ips": ("10.0.0.0/8, ::1", "192.0.2.1")}
    assert build(CoordinatorSettings, given).trusted_proxies == ("10.0.0.0/8", "::1", "192.0.2.1")
    for wrong in ("*", "10.0.0.1/8", "proxy"):
        with pytest.raises(InvalidRequest, match="--forwarded-allow-ips: "):
            build(CoordinatorSettings, {**WORKER, "--forwarded-allow-ips": (wrong,)})


def test_revision_shares_are_percentages() -> None:
    """By revision; together they are at most all requests."""
    name = "--revision-share"

    given = build(CoordinatorSettings, WORKER | {name: ("3fa9=10", "77aa=0.5")})
    assert given.revision_shares == {"3fa9": 10.0, "77aa": 0.5}
    for wrong in ("3fa9", "=10", "3fa9=ten", "3fa9=101", "3fa9=-1", "3fa9=nan"):
        with pytest.raises(InvalidRequest, match="REVISION=PERCENT"):
            build(CoordinatorSettings, WORKER | {name: (wrong,)})
    with pytest.raises(InvalidRequest, match="more than 100"):
        build(CoordinatorSettings, WORKER | {name: ("3fa9=60", "77aa=60")})


def test_everything_that_is_bounded_fits_into_the_chart_at_once() -> None:
    """With stored responses too: each bound at its default, those of requests that are received counted twice."""
    settings, store = CoordinatorSettings(("x:1",)), ResponseStoreSettings(enabled=True)
    most = (
        AT_REST_BYTES
        + 2 * settings.bodies.max_bodies_bytes  # as much again for heads and smaller bodies
        + settings.admission.max_queue_bytes
        + settings.admission.max_running_bytes
        + settings.max_backlog_bytes
        + settings.history.max_bytes
        + store.max_bytes
        + store.max_background * (store.max_bytes // LOG_SHARE)
        + PREFIX_WATCH_BYTES
    )

    limit = yaml.safe_load((CHART / "values.yaml").read_text())["coordinator"]["resources"]["limits"]["memory"]
    assert limit == "2Gi"
    assert most < 2 * 2**30
    trajectories = TrajectorySettings(enabled=True)
    more = settings.media.memory_bytes + NAMES_BYTES + trajectories.max_bytes + INDEXES_BYTES
    more += READING_FACTOR * (trajectories.max_session_bytes + RESERVE_BYTES)  # one is read at a time
    assert most + more < 3 * 2**30  # what the guide asks for with pictures and trajectories
    with_rl = build(CoordinatorSettings, {**WORKER, "--enable-rl": True}).admission.max_running_bytes
    most_with_rl = most - settings.admission.max_running_bytes + with_rl
    assert most_with_rl < 6 * 2**30
    assert most_with_rl + more < 7 * 2**30
    guide = (CHART.parents[2] / "docs" / "guides" / "tuning.md").read_text()
    assert f"{most >> 20} MiB together" in guide
    assert f"these are {more >> 20} MiB" in guide


def test_the_largest_request_is_one_that_may_run() -> None:
    """By the defaults, with routes for trainers and without."""
    for flags in ({}, {"--enable-rl": True}):
        settings = build(CoordinatorSettings, {**WORKER, **flags})
        assert settings.api.max_request_bytes <= settings.admission.max_running_bytes // 2


@pytest.mark.parametrize(
    "name", [name for name, each in declared(CoordinatorSettings).items() if each.option.bounds is not None]
)
def test_numbers_out_of_bounds_are_rejected_by_flag(name: str) -> None:
    """Each part of the settings checks its own."""
    with pytest.raises(InvalidRequest, match=f"{name} must be "):
        build(CoordinatorSettings, WORKER | {name: -(10**6)})
