"""A vLLM server as the worker of a coordinator: its replies to pictures are those that it gives by itself."""

import re
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.conformance.picture_chats import drawn_picture, picture_chats, user_message
from tests.conformance.servers import PLAIN, VllmServer
from tests.conformance.test_pictures import LIMIT, WRONG, asked_for, post_chat
from tests.processes import coordinator
from tests.vision_model.model import vision_model

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(1200)]

TURNS = "first turn", "second turn"
TRUST = "--trust-request-mm-kwargs"
AGAIN = drawn_picture("PNG", seed=9)


@dataclass(frozen=True)
class PlainReplies:
    """The responses of vLLM's server, and of a coordinator whose worker it is."""

    own: dict[str, httpx.Response]
    plain: dict[str, httpx.Response]
    turn_tokens: float
    """Prompt tokens that the server had for the second turn of a chat."""


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> PlainReplies:
    """Return the responses of both, which have ended by then: there is one engine at a time."""
    folder, model = tmp_path_factory.mktemp("stock"), vision_model()
    server = VllmServer(folder, (*PLAIN, *LIMIT), model)
    asked = {name: asked_for(messages, logprobs=True) for name, messages in picture_chats().items()}
    asked |= {name: asked_for([{"role": "user", "content": each}]) for name, each in WRONG.items()}
    try:
        server.wait_ready()
        own = {name: post_chat(server.url, body) for name, body in asked.items()}
        with coordinator(folder, [server.url], "--tokenizer", str(model), *PLAIN, TRUST) as (_, url):
            plain = {name: post_chat(url, body) for name, body in asked.items()}
            turns = [user_message(AGAIN, "What is this?")]
            plain[TURNS[0]] = first = post_chat(url, asked_for(turns, temperature=1.0, seed=3))
            turns += [{"role": "assistant", "content": first.json()["choices"][0]["message"]["content"]}]
            before = prompt_tokens_of(server)
            plain[TURNS[1]] = post_chat(url, asked_for([*turns, user_message("And now?")]))
            turn_tokens = prompt_tokens_of(server) - before
            plain["options"] = post_chat(url, asked_for(turns[:1], mm_processor_kwargs={"do_resize": False}))
        return PlainReplies(own, plain, turn_tokens)
    finally:
        server.stop()


def prompt_tokens_of(server: VllmServer) -> float:
    """Return how many prompt tokens a server has had."""
    text = httpx.get(f"{server.url}/metrics").text
    return sum(float(value) for value in re.findall(r"^vllm:prompt_tokens_total{.*} (\S+)$", text, re.MULTILINE))


def known(body: Any) -> tuple[Any, ...]:
    """Return what has to be equal."""
    choice = body["choices"][0]
    return body["prompt_token_ids"], choice["token_ids"], choice["message"]["content"], choice["finish_reason"]


def test_a_plain_server_replies_through_a_coordinator_as_by_itself(stock: PlainReplies) -> None:
    """To pictures in each place and format, and to bad ones; options of pictures are refused by name."""
    for name in picture_chats():
        wanted, found = stock.own[name].json(), stock.plain[name].json()
        assert known(found) == known(wanted), name
        scores = [[each["logprob"] for each in body["choices"][0]["logprobs"]["content"]] for body in (found, wanted)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4), name
        details = [body["usage"].pop("prompt_tokens_details") for body in (found, wanted)]
        assert found["usage"] == wanted["usage"], name
        assert details[0]["multimodal_tokens"] == details[1]["multimodal_tokens"], name
    for name in WRONG:
        assert stock.plain[name].status_code == 400, name
        assert stock.plain[name].json()["error"]["message"] in stock.own[name].json()["error"]["message"], name
    assert stock.plain["options"].json()["error"]["param"] == "mm_processor_kwargs"
    assert "No worker of" in stock.plain["options"].text


def test_a_later_turn_costs_a_plain_server_one_request(stock: PlainReplies) -> None:
    """It continues from exact ids, and its prompt is expanded without asking."""
    first, second = (stock.plain[name].json() for name in TURNS)
    ids = first["prompt_token_ids"] + first["choices"][0]["token_ids"]
    assert second["token_history"]["reused_tokens"] == len(ids)
    assert second["prompt_token_ids"][: len(ids)] == ids
    assert stock.turn_tokens == second["usage"]["prompt_tokens"]
