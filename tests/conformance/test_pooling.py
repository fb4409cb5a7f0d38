"""Cross encoders, classifiers and adapters of embedders beside vLLM's own server: scores, ranks, classes, vectors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.conformance.json_values import numbers_of, stable_fields
from tests.conformance.pooling_cases import (
    ADAPTER,
    Case,
    adapter_cases,
    classifier_cases,
    cross_encoder_cases,
)
from tests.conformance.servers import VllmServer, running_service
from tests.e2e.checkpoints import embedding_adapter
from tests.pooling_model.model import classifier, cross_encoder
from tokenwire.worker.vllm_engine.embedded_model import EMBEDDED_MODEL_NAME, find_embedding_model

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(1200)]

_LENGTH = ("--max-model-len", "128")
_LORA = ("--enable-lora", "--max-lora-rank", "8")
_TEMPLATE = (
    "{{ instruction | default('Rank.') }}{% for role in ('query', 'document') %} {{ role }}: "
    "{{ (messages | selectattr('role', 'eq', role) | first).content }}{% endfor %}"
)


@dataclass(frozen=True)
class PoolingModel:
    """A model, and what is asked of it."""

    folder: Callable[[], Path]
    cases: Callable[[], dict[str, Case]]
    has_adapter: bool = False
    template: str | None = None
    """That both servers are given, for pairs."""


@dataclass(frozen=True)
class Answers:
    """The responses of both servers, by the names of the cases."""

    cases: Mapping[str, Case]
    theirs: Mapping[str, httpx.Response]
    ours: Mapping[str, httpx.Response]


MODELS = {
    "cross-encoder": PoolingModel(cross_encoder, cross_encoder_cases),
    "cross-encoder with a template": PoolingModel(cross_encoder, cross_encoder_cases, template=_TEMPLATE),
    "classifier": PoolingModel(classifier, classifier_cases),
    "adapter": PoolingModel(find_embedding_model, adapter_cases, has_adapter=True),
}


@pytest.fixture(scope="module", params=MODELS.values(), ids=[*MODELS])
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Return what both servers answer; they run one after the other: there is one engine at a time."""
    model: PoolingModel = request.param
    folder, path, cases = tmp_path_factory.mktemp("pooling"), model.folder(), model.cases()
    adapter = embedding_adapter(path, folder / ADAPTER) if model.has_adapter else None
    options = _LENGTH if adapter is None else (*_LENGTH, *_LORA)
    loaded = () if adapter is None else ("--lora-modules", f"{ADAPTER}={adapter}")
    template = () if model.template is None else ("--chat-template", model.template)
    server = VllmServer(folder, (*options, *loaded, *template), path)
    try:
        server.wait_ready()
        theirs = _asked(server.url, cases)
    finally:
        server.stop()
    routes = () if adapter is None else ("--enable-lora-routes",)
    with running_service(folder, (*routes, *template), options, path) as service:
        if adapter is not None:
            body = {"lora_name": ADAPTER, "lora_path": str(adapter)}
            response = httpx.post(f"{service.url}/v1/load_lora_adapter", json=body, timeout=120)
            assert response.status_code == 200, response.text
        ours = _asked(service.url, cases)
        assert "Traceback" not in service.coordinator.log, service.coordinator.log
    return Answers(cases, theirs, ours)


def _asked(url: str, cases: Mapping[str, Case]) -> dict[str, httpx.Response]:
    with httpx.Client(base_url=url, timeout=120) as client:
        return {
            name: client.post(path, json={"model": EMBEDDED_MODEL_NAME, **body}) for name, (path, body) in cases.items()
        }


def test_answers_are_vllms(answers: Answers) -> None:
    """Scores, probabilities and other numbers to a millionth; ranks, labels, usage and base64 as they are."""
    served = [name for name, response in answers.theirs.items() if response.status_code == 200]
    for name in served:
        theirs, ours = answers.theirs[name].json(), answers.ours[name]
        assert ours.status_code == 200, f"{name}: {ours.text}"
        assert stable_fields(ours.json()) == stable_fields(theirs), name
        assert numbers_of(ours.json()) == pytest.approx(numbers_of(theirs), abs=1e-6), name
    assert len(served) > 5


def test_errors_are_vllms(answers: Answers) -> None:
    """With the same status, and what vLLM says has the beginning of our message in it.

    But routes that are not there say more than that, and what is wrong with a field's type is a list of other words.
    """
    refused = [name for name, response in answers.theirs.items() if response.status_code != 200]
    for name in refused:
        theirs, ours = answers.theirs[name], answers.ours[name]
        assert ours.status_code == theirs.status_code, f"{name}: {ours.text}, {theirs.text}"
        if "Not Found" in theirs.text or "validation error" in theirs.text:
            continue
        shared = ours.json()["error"]["message"].partition(" (")[0].partition(".")[0]
        assert shared in theirs.text, f"{name}: {theirs.text}"


def test_what_differs_gets_other_numbers(answers: Answers) -> None:
    """Else equal answers would show nothing."""
    for name in answers.cases:
        if "drawn" in name:
            numbers = numbers_of(answers.ours[name].json()["data"])
            assert len(set(numbers)) > 0.9 * len(numbers), name
        if "adapter" in name:
            base = answers.ours[name.replace("adapter", "base")].json()
            assert base != answers.ours[name].json(), name
