"""Token-exact history over HTTP: prompts of later turns, for replies of any form.

One file, since its tests share two services that are slow to start.
"""

import itertools
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.ports import free_port
from tests.processes import Service, coordinator, simulated_service
from tests.redis_server import redis_server
from tests.tokenizers import npm_tokenizer_directory

NEXT = {"role": "user", "content": "Go on."}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}


def post_briefly(service: Service, path: str = "/v1/chat/completions", **body: Any) -> Any:
    """Post a body; return the JSON of the reply, which must succeed."""
    limit = {"max_output_tokens" if path == "/v1/responses" else "max_tokens": 12}
    response = httpx.post(f"{service.url}{path}", json={**limit, **body}, timeout=30)
    assert response.status_code == 200, response.text
    return response.json()


def rejected_chat(service: Service, **body: Any) -> dict[str, Any]:
    """Post a chat; return the error of the reply, which must be a 400."""
    response = httpx.post(f"{service.url}/v1/chat/completions", json={"max_tokens": 4, **body}, timeout=30)
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


def talk(content: str = "Hello.") -> list[dict[str, Any]]:
    """Return a conversation at its start."""
    return [{"role": "user", "content": content}]


def test_a_chat_with_ids_continues_from_them(service: Service) -> None:
    """Three turns: each prompt starts with the last prompt and completion, and the reply reports it."""
    messages = talk()
    before: list[int] = []
    for turn in range(3):
        answer = post_briefly(service, messages=messages, return_token_ids=True, stop=["a", "e"] if turn else None)
        assert answer["prompt_token_ids"][: len(before)] == before
        source = "stored" if turn else None
        assert answer["token_history"] == {"mode": "exact", "reused_tokens": len(before), "source": source}
        choice = answer["choices"][0]
        before = answer["prompt_token_ids"] + choice["token_ids"]
        messages += [choice["message"], NEXT]


def test_streams_are_stored_as_full_replies_are(service: Service, client: OpenAI) -> None:
    """The first chunk reports the reused ids."""
    messages: list[Any] = talk("Stream.")
    ids: list[int] = []
    for _ in range(3):
        content, before = "", ids
        options: Any = {"extra_body": {"return_token_ids": True}}
        for number, chunk in enumerate(
            client.chat.completions.create(model="sim", messages=messages, max_tokens=12, stream=True, **options)
        ):
            extra = chunk.model_extra or {}
            if number == 0:
                ids = list(extra["prompt_token_ids"])
                assert extra["token_history"]["reused_tokens"] == len(before)
                assert ids[: len(before)] == before
            else:
                ids += (chunk.choices[0].model_extra or {}).get("token_ids") or []
            content += chunk.choices[0].delta.content or ""
        messages += [{"role": "assistant", "content": content}, NEXT]


def test_each_choice_can_be_continued(service: Service) -> None:
    """n > 1: the ids of the reply that the client continues are found."""
    answer = post_briefly(service, messages=talk("Choose."), return_token_ids=True, n=3)
    for choice in answer["choices"]:
        following = post_briefly(service, messages=[*talk("Choose."), choice["message"], NEXT], return_token_ids=True)
        ids = answer["prompt_token_ids"] + choice["token_ids"]
        assert following["prompt_token_ids"][: len(ids)] == ids


def test_a_conversation_id_makes_history_exact(service: Service) -> None:
    """A header is enough; another conversation does not find these replies."""
    messages = talk("Conversation.")
    url = f"{service.url}/v1/chat/completions"
    first = httpx.post(url, json={"messages": messages, "max_tokens": 8}, headers={"X-Session-ID": "one"}).json()
    messages += [first["choices"][0]["message"], NEXT]
    reused = {}
    for name in ("one", "two"):
        answer = httpx.post(url, json={"messages": messages, "max_tokens": 8}, headers={"X-Session-ID": name}).json()
        reused[name] = answer["token_history"]["reused_tokens"]

    assert reused["one"] > 0
    assert reused["two"] == 0


def test_plain_chats_equal_vllms(service: Service) -> None:
    """Without ids or a conversation id, or on request, nothing is stored or reported."""
    cases: list[dict[str, Any]] = [{}, {"token_history": "template", "return_token_ids": True}]
    for more in cases:
        answer = post_briefly(service, messages=talk(f"Plain {more}."), **more)
        messages = [*talk(f"Plain {more}."), answer["choices"][0]["message"], NEXT]
        assert "token_history" not in answer
        assert post_briefly(service, messages=messages, token_history="exact")["token_history"]["reused_tokens"] == 0


def test_uncertain_prompts_are_rendered_by_the_template(service: Service) -> None:
    """Truncated prompts and echoes are neither stored nor looked up."""
    cases: list[dict[str, Any]] = [{"truncate_prompt_tokens": 1000}, {"echo": True}, {"add_special_tokens": True}]
    for more in cases:
        first = post_briefly(service, messages=talk(f"{more}"), token_history="exact", **more)
        following = [*talk(f"{more}"), first["choices"][0]["message"], NEXT]
        assert first["token_history"] == {"mode": "exact", "reused_tokens": 0, "source": None}
        assert post_briefly(service, messages=following, token_history="exact")["token_history"]["reused_tokens"] == 0


def test_prefixes_that_clients_require(service: Service) -> None:
    """The prompt starts with them, on /tokenize too; a request for which that is impossible is rejected by name."""
    first = post_briefly(service, messages=talk("Required."), return_token_ids=True, token_history="template")
    ids = first["prompt_token_ids"] + first["choices"][0]["token_ids"]
    messages = [*talk("Required."), first["choices"][0]["message"], NEXT]

    answer = post_briefly(
        service, messages=messages, required_prefix_token_ids=ids, logprobs=True, return_token_ids=True
    )
    tokenized = post_briefly(service, "/tokenize", messages=messages, required_prefix_token_ids=ids)

    assert answer["prompt_token_ids"][: len(ids)] == ids
    assert answer["prompt_token_ids"] == tokenized["tokens"]
    assert answer["token_history"]["source"] == "required_prefix_token_ids"
    message, choice = answer["choices"][0]["message"], answer["choices"][0]
    assert message["prompt_token_ids"] == answer["prompt_token_ids"]
    assert message["generation_token_ids"] == choice["token_ids"]
    assert message["generation_log_probs"] == [entry["logprob"] for entry in choice["logprobs"]["content"]]
    for wrong in ({"messages": talk(), "required_prefix_token_ids": [7]}, {"token_history": "template"}):
        error = rejected_chat(service, **{"messages": messages, "required_prefix_token_ids": ids, **wrong})
        assert error["param"] == "required_prefix_token_ids"


def test_ids_on_messages(service: Service) -> None:
    """The prompt starts with the last reply's ids, and the next reply has its own; invalid ones are named."""
    first = post_briefly(service, messages=talk("Carry."), return_token_ids=True, token_history="template")
    carried = {
        **first["choices"][0]["message"],
        "prompt_token_ids": first["prompt_token_ids"],
        "generation_token_ids": first["choices"][0]["token_ids"],
        "generation_log_probs": [0.0],
    }

    answer = post_briefly(service, messages=[*talk("Carry."), carried, NEXT])

    message = answer["choices"][0]["message"]
    ids = carried["prompt_token_ids"] + carried["generation_token_ids"]
    assert message["prompt_token_ids"][: len(ids)] == ids
    assert len(message["generation_token_ids"]) == answer["usage"]["completion_tokens"]
    assert "generation_log_probs" not in message
    assert answer["token_history"]["source"] == "message"
    for ids in ("text", [1, "2"], [True]):
        error = rejected_chat(service, messages=[*talk(), {**carried, "prompt_token_ids": ids}, NEXT])
        assert "messages[1].prompt_token_ids" in error["message"]


def test_tokenize_uses_stored_replies(service: Service) -> None:
    """With token_history exact it returns the next chat's prompt; by default the template's."""
    first = post_briefly(service, messages=talk("Tokenize."), return_token_ids=True)
    messages = [*talk("Tokenize."), first["choices"][0]["message"], NEXT]
    ids = first["prompt_token_ids"] + first["choices"][0]["token_ids"]

    exact = post_briefly(service, "/tokenize", messages=messages, token_history="exact")["tokens"]

    assert exact[: len(ids)] == ids
    assert post_briefly(service, messages=messages, return_token_ids=True)["prompt_token_ids"] == exact


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["thinks", "calls", "calls-twice", "only-calls", "silent"])
def test_parsed_replies_are_continued_by_their_ids(scripted: Service, model: str, stream: bool) -> None:
    """Including the ids of reasoning and tool calls."""
    messages = talk(f"{model} {stream}")
    body: dict[str, Any] = {"model": model, "tools": [WEATHER], "return_token_ids": True, "max_tokens": 400}
    before: list[int] = []
    for turn in range(3):
        if stream:
            prompt, ids, message = streamed_chat(scripted, {**body, "messages": messages})
        else:
            answer = post_briefly(scripted, messages=messages, **body)
            choice = answer["choices"][0]
            prompt, ids, message = answer["prompt_token_ids"], choice["token_ids"], choice["message"]
        assert prompt[: len(before)] == before, turn
        assert message["reasoning"], "what was thought before does not end the reasoning of this reply"
        before = prompt + ids
        if turn % 2:
            message.pop("reasoning", None)
        calls = message.get("tool_calls") or []
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls]
        messages += [message, *(results or [NEXT])]


def streamed_chat(service: Service, body: dict[str, Any]) -> tuple[list[int], list[int], dict[str, Any]]:
    """Stream a chat; return the ids of prompt and completion, and the assembled message."""
    with OpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0) as client:
        known = {name: body[name] for name in ("model", "messages", "tools", "max_tokens")}
        extra = {"return_token_ids": True}
        prompt: list[int] = []
        ids: list[int] = []
        message: dict[str, Any] = {"role": "assistant", "content": "", "reasoning": "", "tool_calls": []}
        for chunk in client.chat.completions.create(**known, stream=True, extra_body=extra):
            prompt = prompt or (chunk.model_extra or {}).get("prompt_token_ids") or []
            choice = chunk.choices[0]
            ids += (choice.model_extra or {}).get("token_ids") or []
            message["content"] += choice.delta.content or ""
            message["reasoning"] += (choice.delta.model_extra or {}).get("reasoning") or ""
            for call in choice.delta.tool_calls or []:
                if call.id:
                    message["tool_calls"].append({"id": call.id, "type": "function", "function": {"arguments": ""}})
                function = message["tool_calls"][call.index]["function"]
                function["name"] = call.function.name or function.get("name")
                function["arguments"] += call.function.arguments or ""
    return prompt, ids, message


def test_other_routes_continue_replies_too(service: Service) -> None:
    """A reply of /v1/responses is found by any chat of the conversation, and by the next response."""
    body: dict[str, Any] = {"input": "Hello.", "token_history": "exact"}
    first = post_briefly(service, "/v1/responses", **body)
    text = first["output"][0]["content"][0]["text"]
    turns = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": text}, NEXT]

    following = post_briefly(service, "/v1/responses", **{**body, "input": turns})
    chat = post_briefly(service, messages=turns, token_history="exact")

    assert chat["token_history"]["reused_tokens"] == first["usage"]["total_tokens"]
    assert following["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]


def test_the_server_has_defaults(folder: Path) -> None:
    """--token-history exact stores all chats; a small --history-mb evicts the oldest."""
    options = ["--token-history", "exact", "--history-mb", "0.01"]
    with simulated_service(folder, "--sim-step-ms", "1", coordinator_options=options) as service:
        first = post_briefly(service, messages=talk())
        messages = [*talk(), first["choices"][0]["message"], NEXT]
        assert post_briefly(service, messages=messages)["token_history"]["source"] == "stored"
        for number in range(20):
            post_briefly(service, messages=talk(f"Number {number}."))
        assert post_briefly(service, messages=messages)["token_history"]["source"] is None


def test_reasoning_that_is_hidden_is_in_the_ids(scripted: Service) -> None:
    """The client did not get it, and its next prompt has it."""
    body: dict[str, Any] = {"model": "thinks", "include_reasoning": False, "token_history": "exact", "max_tokens": 100}
    first = post_briefly(scripted, messages=talk("Hide."), **body)
    message = first["choices"][0]["message"]
    assert message["reasoning"] is None
    following = post_briefly(scripted, messages=[*talk("Hide."), message, NEXT], **body)
    assert following["token_history"]["reused_tokens"] == first["usage"]["total_tokens"]


@pytest.mark.npm
@pytest.mark.parametrize("name", ["qwen3", "llama3_1"])
def test_every_prompt_keeps_the_ids_of_earlier_turns_over_http(folder: Path, name: str) -> None:
    """Random tokens of a real vocabulary, some replies truncated or stopped: each prompt extends the last turn."""
    model = str(npm_tokenizer_directory(name))
    with simulated_service(folder, model, "--sim-step-ms", "0", "--sim-eos-rate", "0.04") as service:
        mismatched = {"exact": 0, "template": 0}
        for mode, number in itertools.product(mismatched, range(20)):
            messages = talk(f"{mode} {number}")
            ids: list[int] = []
            for turn in range(4):
                stop = ["a", "th"] if (number + turn) % 3 == 0 else None
                body: dict[str, Any] = {
                    "seed": 100 * number + turn,
                    "stop": stop,
                    "max_tokens": 30,
                    "token_history": mode,
                }
                answer = post_briefly(service, messages=messages, return_token_ids=True, **body)
                mismatched[mode] += answer["prompt_token_ids"][: len(ids)] != ids
                ids = answer["prompt_token_ids"] + answer["choices"][0]["token_ids"]
                messages += [answer["choices"][0]["message"], NEXT]

    assert mismatched["exact"] == 0
    assert mismatched["template"] > 20, "templates alone should differ, or this shows nothing"


def post_until(url: str, body: dict[str, Any], source: str | None) -> dict[str, Any]:
    """Send the request again until the prompt's ids are from there: coordinators reply before they write to Redis."""
    deadline = time.monotonic() + 10
    while True:
        answer: dict[str, Any] = httpx.post(f"{url}/v1/chat/completions", json=body).json()
        if answer["token_history"]["source"] == source:
            return answer
        assert time.monotonic() < deadline, answer["token_history"]
        time.sleep(0.02)


@pytest.mark.npm
def test_coordinators_share_history_by_redis(service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversation continues on another coordinator; the password is in no log."""
    monkeypatch.setenv("TOKENWIRE_HISTORY_STORE_PASSWORD", "between us")
    port = free_port()
    options = ("--history-store", f"redis://127.0.0.1:{port}")
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    with (
        redis_server(port, "between us"),
        coordinator(folder / "a", service.addresses, *options) as (one, first_url),
        coordinator(folder / "b", service.addresses, *options) as (other, second_url),
    ):
        ids: list[int] = []
        messages = talk("Shared.")
        for turn, url in enumerate((first_url, second_url, first_url, second_url)):
            body = {"messages": messages, "return_token_ids": True, "max_tokens": 8}
            answer = post_until(url, body, "stored" if turn else None)
            assert answer["prompt_token_ids"][: len(ids)] == ids
            ids = answer["prompt_token_ids"] + answer["choices"][0]["token_ids"]
            messages += [answer["choices"][0]["message"], NEXT]
        assert "between us" not in one.log + other.log
