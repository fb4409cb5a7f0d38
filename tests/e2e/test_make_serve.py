"""What `make serve` serves: the embedded model, and tools, with a template that shows them to it."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.conformance.parity.corpus.prompts_used import STORY, SUM
from tests.processes import Service
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.process.shared_options import default_cache_dir
from tokenwire.worker.vllm_engine.embedded_model import EMBEDDED_MODEL_NAME, prepare_embedded_model

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "scripts" / "smollm2-tools.jinja"
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "What is the weather in Paris?"}]
ANSWERED = [
    *MESSAGES,
    {"role": "assistant", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "sun"},
]
TALKS = [
    MESSAGES,
    [{"role": "system", "content": "Be brief."}, *MESSAGES],
    [*MESSAGES, {"role": "assistant", "content": "Sunny."}, {"role": "user", "content": "And in Rome?"}],
]


@pytest.fixture(scope="module")
def client(embedded: Service) -> Iterator[OpenAI]:
    """A client of a service with the options of `make serve`."""
    with OpenAI(base_url=f"{embedded.url}/v1", api_key="none", max_retries=0) as openai:
        yield openai


@pytest.mark.engine
def test_answers_have_sense(client: OpenAI) -> None:
    """The model answers how much two and two is, and stops."""
    messages: list[Any] = [{"role": "user", "content": SUM}]
    answer = client.chat.completions.create(model=EMBEDDED_MODEL_NAME, messages=messages, temperature=0, max_tokens=40)

    assert answer.choices[0].finish_reason == "stop"
    assert "4" in (answer.choices[0].message.content or "")


@pytest.mark.engine
async def test_slow_schemas_delay_no_other_client(embedded: Service) -> None:
    """One client's are given up one after the other; another's has its turn in between, and others do not wait."""
    ended: list[str] = []

    async def ask(address: str, name: str, lengths: Sequence[int]) -> int:
        properties = {f"p{n}": {"type": "string", "maxLength": n} for n in lengths}
        schema = {"name": name, "schema": {"type": "object", "properties": properties}}
        body = {
            "messages": MESSAGES,
            "max_tokens": 4,
            **({"response_format": {"type": "json_schema", "json_schema": schema}} if lengths else {}),
        }
        transport = httpx.AsyncHTTPTransport(local_address=address)
        async with httpx.AsyncClient(transport=transport, timeout=120) as client:
            answer = await client.post(f"{embedded.url}/v1/chat/completions", json=body)
        ended.append(name)
        return answer.status_code

    slow = [asyncio.create_task(ask("127.0.0.1", "slow", range(5000 - n, 5016 - n))) for n in range(2)]
    await asyncio.sleep(0)
    others = [asyncio.create_task(ask("127.0.0.2", *other)) for other in (("short", [9]), ("none", []))]

    assert await asyncio.gather(*slow) == [400] * 2
    assert await asyncio.gather(*others) == [200] * 2
    assert ended.index("none") == 0
    assert ended[-1] == "slow", ended


@pytest.mark.engine
def test_a_stop_string_ends_the_engine(embedded: Service, client: OpenAI) -> None:
    """When a stop string matches, the engine makes at most two more tokens."""
    before = embedded.server_info().generated_tokens
    messages: list[Any] = [{"role": "user", "content": STORY}]

    answer = client.chat.completions.create(
        model=EMBEDDED_MODEL_NAME, messages=messages, temperature=0, stop=[" who"], max_tokens=1000
    )

    embedded.wait_slots(0)
    assert answer.usage is not None
    assert answer.choices[0].finish_reason == "stop"
    assert " who" not in (answer.choices[0].message.content or "")
    assert embedded.server_info().generated_tokens - before <= answer.usage.completion_tokens + 2


@pytest.mark.engine
@pytest.mark.parametrize("messages", [MESSAGES, ANSWERED], ids=["first turn", "second turn"])
@pytest.mark.parametrize("choice", ["auto", "none"])
def test_agents_get_an_answer(client: OpenAI, messages: list[Any], choice: Any) -> None:
    """To their first request, which has tools, and to the one with a tool's result."""
    answer = client.chat.completions.create(
        model=EMBEDDED_MODEL_NAME,
        messages=messages,
        tools=[TOOL],
        tool_choice=choice,
        max_tokens=5,
        extra_body={"ignore_eos": True},  # the model may end its reply before
    )

    assert answer.choices[0].finish_reason == "length"


@pytest.mark.engine
def test_the_model_compacts_a_conversation(client: OpenAI) -> None:
    """It writes the summary itself, and goes on from that."""
    said: list[Any] = [
        {"role": "user", "content": "My name is Ada. Name a river in France."},
        {"role": "assistant", "content": "The Seine flows through Paris."},
        {"role": "user", "content": "Thank you."},
    ]
    compacted = client.responses.compact(model=EMBEDDED_MODEL_NAME, input=said, extra_body={"top_k": 1})

    assert compacted.output[-1].type == "compaction"
    assert compacted.usage.output_tokens > 0
    kept: list[Any] = [item.model_dump(exclude_unset=True, warnings=False) for item in compacted.output]
    more = client.responses.create(
        model=EMBEDDED_MODEL_NAME,
        input=[*kept, {"role": "user", "content": "Go on."}],
        max_output_tokens=16,
    )
    assert more.output_text
    assert more.usage is not None
    assert more.usage.input_tokens > compacted.usage.output_tokens


def render_template(template: str, messages: list[dict[str, Any]], tools: list[Any] | None = None) -> str:
    """Render as the coordinator does."""
    values = {"tools": tools, "documents": None, "add_generation_prompt": True, "continue_final_message": False}
    return ChatTemplate(template, {}, "string").render_values(messages, values)


def test_the_template_shows_tools_their_calls_and_results() -> None:
    """In the format that the parser `hermes` reads."""
    call = {"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}
    messages = [MESSAGES[0], {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "sun"}]

    shown = render_template(TEMPLATE.read_text(), messages, [TOOL])

    listed = shown.partition("<tools>\n")[2].partition("\n</tools>")[0]
    assert json.loads(listed) == TOOL
    called = shown.partition("assistant\n<tool_call>\n")[2].partition("\n</tool_call><|im_end|>")[0]
    assert json.loads(called) == {"name": "get_weather", "arguments": {"city": "Paris"}}
    assert shown.endswith("<|im_start|>user\n<tool_response>\nsun\n</tool_response><|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.engine
@pytest.mark.parametrize("messages", TALKS)
def test_without_tools_the_template_is_the_models_own(messages: list[dict[str, Any]]) -> None:
    """Letter by letter."""
    own = prepare_embedded_model(default_cache_dir(), lambda _: None) / "chat_template.jinja"

    assert render_template(TEMPLATE.read_text(), messages) == render_template(own.read_text(), messages)
