"""POST /v1/responses/compact with the real `openai` client and real processes, by a scripted model that reasons."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import BadRequestError, OpenAI

from tests.e2e.scripted import PARSERS, write_model
from tests.processes import Service, simulated_service
from tests.summaries import SUMMARY, write_rules
from tokenwire.coordinator.api.responses.compaction_item import compaction_item

OPTIONS = ("--enable-responses-store", "--enable-trajectories")
TOOLS: list[Any] = [{"type": "function", "name": "find", "parameters": {"type": "object"}}]


@pytest.fixture(scope="module")
def reasoning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that stores the responses of two tenants, whose model thinks before it writes."""
    folder = tmp_path_factory.mktemp("reasoning")
    (folder / "keys").write_text("tenant sesame\nother open\n")
    rules = write_rules(folder / "rules.json", "<think>\nWhat was said?\n</think>")
    worker = (str(write_model(folder / "model")), "--sim-replies", str(rules), "--served-model-name", "sim")
    options = (*PARSERS, *OPTIONS, "--api-keys-file", str(folder / "keys"))
    with simulated_service(folder, *worker, "--sim-step-ms", "0", coordinator_options=options) as started:
        yield started
        assert "Traceback" not in started.coordinator.log, started.coordinator.log


@pytest.fixture
def client(reasoning: Service) -> Iterator[OpenAI]:
    """The client of one tenant."""
    with OpenAI(base_url=f"{reasoning.url}/v1", api_key="sesame", max_retries=0) as openai:
        yield openai


def test_a_conversation_goes_on_from_its_summary(client: OpenAI) -> None:
    """As input of another response, as often as the client likes; the model's reasoning is no part of it."""
    said: list[Any] = [{"role": "user", "content": "Name a “river”."}, {"role": "assistant", "content": "Danube."}]
    compacted = client.responses.compact(model="sim", input=said, instructions="Be kind.")
    message, item = compacted.output

    assert _text_of(message) == "Name a “river”."
    assert item.type == "compaction"
    assert item.encrypted_content == compaction_item(SUMMARY)["encrypted_content"]
    assert compacted.usage.output_tokens_details.reasoning_tokens > 10
    items = [each.model_dump(exclude_unset=True, warnings=False) for each in compacted.output]
    for _ in range(2):
        goes_on: list[Any] = [*items, {"role": "user", "content": "How long is it?"}]
        assert client.responses.create(model="sim", input=goes_on).output_text == "It goes on from the summary."


def test_a_stored_conversation_is_compacted_by_its_id(client: OpenAI, reasoning: Service) -> None:
    """The same as by its items, from exact ids; and one that begins with a summary is stored and listed as others."""
    first = client.responses.create(model="sim", input="Name a river. summary-7919")
    second = client.responses.create(model="sim", input="Name another.", previous_response_id=first.id)
    before = _reused_tokens(reasoning)
    by_id = client.responses.compact(model="sim", previous_response_id=second.id)
    reused = _reused_tokens(reasoning) - before
    sent: list[Any] = [
        *({"role": "user", "content": "Name a river. summary-7919"}, *first.output),
        *({"role": "user", "content": "Name another."}, *second.output),
    ]
    by_items = client.responses.compact(model="sim", input=sent)

    texts = [[_text_of(each) for each in response.output[:-1]] for response in (by_id, by_items)]
    assert texts == [["Name a river. summary-7919", "Name another."]] * 2
    assert by_id.output[-1].encrypted_content == by_items.output[-1].encrypted_content  # type: ignore[union-attr]
    assert second.usage is not None
    assert reused == second.usage.total_tokens
    items: list[Any] = [each.model_dump(exclude_unset=True, warnings=False) for each in by_id.output]
    third = client.responses.create(model="sim", input=[*items, {"role": "user", "content": "Go on."}])
    last = client.responses.create(model="sim", input="And on.", previous_response_id=third.id)
    assert last.output_text == "It goes on from the second summary."
    assert [item.type for item in client.responses.input_items.list(third.id, order="asc")] == [
        *("message", "message", "compaction", "message")
    ]


def test_a_foreign_or_unknown_response_is_not_compacted(client: OpenAI, reasoning: Service) -> None:
    """With OpenAI's code of it."""
    response = client.responses.create(model="sim", input="Name a river. summary-7919")
    with OpenAI(base_url=f"{reasoning.url}/v1", api_key="open", max_retries=0) as other:
        for id_ in (response.id, "resp_unknown"):
            with pytest.raises(BadRequestError) as raised:
                other.responses.compact(model="sim", previous_response_id=id_)
            assert (raised.value.code, raised.value.param) == ("previous_response_not_found", "previous_response_id")


def test_a_summary_is_a_turn_of_its_session(client: OpenAI, reasoning: Service) -> None:
    """With tools in the prompt, none is called; each token of it is recorded, its message as it was parsed."""
    session = client.with_options(base_url=f"{reasoning.url}/sessions/compacted/v1")
    body: dict[str, Any] = {"tools": TOOLS, "parallel_tool_calls": True}
    compacted = session.responses.compact(model="sim", input="Name a “river”.", extra_body=body)
    key = {"Authorization": "Bearer sesame"}
    (node,) = httpx.get(f"{reasoning.url}/sessions/compacted/trajectory", headers=key).json()["nodes"]

    assert node["message"]["content"].strip() == SUMMARY
    assert node["mask"] == [1] * compacted.usage.output_tokens


def _text_of(message: Any) -> Any:
    return message.content[0].text


def _reused_tokens(service: Service) -> float:
    """Return how many prompt tokens came from earlier ids."""
    lines = httpx.get(f"{service.url}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("tokenwire_prompt_tokens_reused_total{"))
