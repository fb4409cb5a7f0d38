"""Where the prompts of a session leave one another, and why caches are missed, with real processes.

One file, since its tests share a service that is slow to start.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes import Service, simulated_service, wait_routable

TASK = "Read the file, edit it, and run the tests. " * 20
TRUST = "--trust-request-chat-template"
TEMPLATE = "{{ mood }}{% for message in messages %}{{ message.content }}\n{% endfor %}"
Messages = list[dict[str, str]]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One worker with a small cache behind a coordinator that names causes."""
    folder = tmp_path_factory.mktemp("divergence")
    options = ("--served-model-name", "sim", "--sim-kv-tokens", "16384", "--sim-max-model-len", "16384")
    with simulated_service(
        folder, *options, coordinator_options=["--enable-debug-headers", "--log-format", "json", "--enable-rl", TRUST]
    ) as started:
        yield started
        assert "Traceback" not in started.coordinator.log, started.coordinator.log


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    """A client of the service."""
    with httpx.Client(base_url=service.url, timeout=30) as client:
        yield client


def system(line: str) -> dict[str, str]:
    """Return a system prompt with one line that changes."""
    return {"role": "system", "content": f"You are an agent.\n{TASK}\nx-billing: {line}\n{TASK}"}


def question(text: str) -> dict[str, str]:
    """Return a long question."""
    return {"role": "user", "content": f"{text} {TASK}"}


def explained(client: httpx.Client, session: str, messages: Messages, **fields: Any) -> dict[str, str]:
    """Send a turn; return the fields of the header, none if there is none."""
    body = {"messages": messages, "max_tokens": 4, **fields}
    reply = client.post("/v1/chat/completions", json=body, headers={"X-Session-ID": session})
    assert reply.status_code == 200, reply.text
    messages.append(reply.json()["choices"][0]["message"] if not fields.get("stream") else question("?"))
    header = reply.headers.get("x-tokenwire-prefix", "")
    return dict(part.split("=", 1) for part in header.split("; ", 3)) if header else {}


def test_a_line_that_changes_on_every_request_is_named(service: Service, client: httpx.Client) -> None:
    """The header names the message and shows the line; the log has the position and not the text."""
    messages = [system("cc_version=1.0.aaa"), question("Go.")]
    assert explained(client, "billing", messages) == {}
    found = explained(client, "billing", [system("cc_version=1.0.bbb"), *messages[1:], question("On.")])

    assert (found["cause"], found["message"]) == ("edited", "0")
    assert "cc_version=1.0.bbb" in json.loads(found["text"])
    assert len(json.loads(found["text"])) <= 160
    line = service.coordinator.wait_for(r'.*"prefix": "edited".*')[0]
    assert json.loads(line)["prefix_message"] == 0
    assert "cc_version" not in line
    (model,) = client.get("/status.json").json()["processes"][0]["models"]
    assert model["prefixes"]["edited"] == 1
    assert 'tokenwire_prefix_divergence_total{cause="edited"} 1.0' in client.get("/metrics").text


def test_a_conversation_that_goes_on_has_no_cause(client: httpx.Client) -> None:
    """Each turn begins with the last one, and its worker has that."""
    messages = [system("same"), question("Go.")]
    explained(client, "on", messages)
    for text in ("On.", "And on."):
        messages.append(question(text))
        assert explained(client, "on", messages)["cause"] == "none"


@pytest.mark.parametrize(("mode", "cause"), [("auto", "edited"), ("template", "none")])
def test_a_reply_that_is_not_sent_back_as_it_was_is_an_edit(client: httpx.Client, mode: str, cause: str) -> None:
    """Its ids are lost to the next prompt, though all of the last one was cached; only the history knows it."""
    messages, session = [system("same"), question("Go.")], f"reply-{mode}"
    explained(client, session, messages, token_history=mode)
    messages[-1] = {**messages[-1], "content": messages[-1]["content"] + "!"}
    messages.append(question("On."))
    found = explained(client, session, messages, token_history=mode)
    messages.append(question("And on."))

    assert (found["cause"], found.get("message")) == (cause, "2" if cause == "edited" else None)
    assert "text" in found or cause == "none"
    assert explained(client, session, messages, token_history=mode)["cause"] == "none"


Ask = Callable[[httpx.Client, str, Messages], tuple[str, str]]


def by_chat(client: httpx.Client, session: str, messages: Messages) -> tuple[str, str]:
    """Send a chat; return its cause and message, and append the reply."""
    found = explained(client, session, messages)
    return found.get("cause", ""), found.get("message", "")


def by_responses(client: httpx.Client, session: str, messages: Messages) -> tuple[str, str]:
    """Send a chat to Responses."""
    body = {"instructions": messages[0]["content"], "input": messages[1:], "max_output_tokens": 4}
    reply = client.post("/v1/responses", json=body, headers={"X-Session-ID": session})
    (item,) = reply.json()["output"]
    return appended(messages, item["content"][0]["text"], reply)


def by_messages(client: httpx.Client, session: str, messages: Messages) -> tuple[str, str]:
    """Send a chat to Messages."""
    body = {"model": "sim", "system": messages[0]["content"], "messages": messages[1:], "max_tokens": 4}
    reply = client.post("/v1/messages", json=body, headers={"X-Session-ID": session})
    return appended(messages, reply.json()["content"][0]["text"], reply)


def appended(messages: Messages, text: str, reply: httpx.Response) -> tuple[str, str]:
    """Append a reply; return its cause and message."""
    messages.append({"role": "assistant", "content": text})
    header = reply.headers.get("x-tokenwire-prefix", "")
    found = dict(part.split("=", 1) for part in header.split("; ", 3)) if header else {}
    return found.get("cause", ""), found.get("message", "")


ASKS = pytest.mark.parametrize("ask", [by_chat, by_responses, by_messages])


@ASKS
def test_a_reminder_that_only_the_newest_message_has_is_an_edit(client: httpx.Client, ask: Ask) -> None:
    """Its message is named: the session's own reply follows it, whatever the prompt's length; a retry has none."""
    messages, session, found = [system("reminded")], f"reminded-{ask.__name__}", []
    for text in ("Go.", "On.", "And on."):
        sent = [*messages, {"role": "user", "content": f"{text} It is {text} <env>{TASK * 4}</env>"}]
        found.append(ask(client, session, sent))
        messages += [{"role": "user", "content": text}, sent[-1]]
    retried = ask(client, session, [*messages[:-2], question("Another." + 4 * TASK)])

    assert found == [("", ""), ("edited", "1"), ("edited", "3")]
    assert retried == ("branch", "5")


@ASKS
def test_a_sliding_window_is_an_edit(client: httpx.Client, ask: Ask) -> None:
    """Of the first message that is not where it was; one that is put in there, too."""
    messages, session, found = [system("sliding")], f"sliding-{ask.__name__}", []
    for number in range(4):
        messages.append(question(f"Step {number}."))
        sent = [messages[0], *messages[1:][-5:]]
        found.append(ask(client, session, sent))
        messages.append(sent[-1])
    inserted = ask(client, session, [messages[0], question("By the way."), *messages[2:], question("On.")])

    assert found == [("", ""), ("none", ""), ("none", ""), ("edited", "1")]
    assert inserted == ("edited", "1")


@ASKS
def test_dropped_messages_without_a_new_reply_are_an_edit(client: httpx.Client, ask: Ask) -> None:
    """The session's last messages are as they were, at other places; another conversation has others."""
    first = [system("dropped"), *(question(text) for text in ("One.", "Two.", "Three.", "Four."))]
    session = f"dropped-{ask.__name__}"
    ask(client, session, [*first])

    assert ask(client, session, [first[0], *first[2:]]) == ("edited", "1")
    other = [first[0], *(question(text) for text in ("Five.", "Six.", "Seven.", "Four."))]
    assert ask(client, session, other) == ("branch", "1")


@ASKS
def test_a_nested_agent_with_a_message_of_the_session_is_a_branch(client: httpx.Client, ask: Ask) -> None:
    """The agent's own conversation goes on from its own last prompt."""
    session = f"nested-{ask.__name__}"
    own = [system("own"), question("The environment."), question("The task.")]
    nested = [{"role": "system", "content": "Help with a part of it. " * 40}, own[1], question("A part.")]
    ask(client, session, own)
    own.append(question("On."))
    found = [ask(client, session, nested), ask(client, session, own)]
    own.append(question("And on."))
    retried = [{"role": "system", "content": own[0]["content"].replace("own", "new")}, *own[1:]]

    assert found == [("branch", "0"), ("none", "")]
    assert ask(client, session, retried) == ("edited", "0")


def test_branches_compaction_and_salts(client: httpx.Client) -> None:
    """What else makes a prompt leave the last one is told apart."""
    first = [system("a"), question("Go."), question("More."), question("Most.")]
    explained(client, "many", [*first])
    branch = explained(client, "many", [first[0], question("Another question.")])
    back = explained(client, "many", [*first, question("On.")])
    assert [each["cause"] for each in (branch, back)] == ["branch", "none"]
    explained(client, "long", [*first])
    compacted = explained(client, "long", [first[0], {"role": "user", "content": "In short: go."}])
    assert compacted["cause"] == "compacted"

    explained(client, "salt", [*first])
    assert explained(client, "salt", [*first], cache_salt="b")["cause"] == "salt"


def test_a_helper_with_a_salt_of_its_own_leaves_the_causes_of_others(client: httpx.Client) -> None:
    """Each is compared with what could be cached for it; a helper that has nothing in common is a branch at first."""
    own, helper = [system("a"), question("Go.")], [{"role": "system", "content": TASK * 2}, question("Help.")]
    explained(client, "helped", own)
    causes = []
    for _ in range(2):
        causes.append(explained(client, "helped", helper, cache_salt="small")["cause"])
        own.append(question("On."))
        causes.append(explained(client, "helped", own)["cause"])
        helper.append(question("More help."))

    assert causes == ["branch", "none", "none", "none"]


def test_a_short_helper_takes_no_place_of_the_agents_own_prompt(client: httpx.Client) -> None:
    """A title has nothing in common with it; what begins like it and is much shorter may be either."""
    own = [system("a"), question("Go.")]
    explained(client, "titled", own)
    causes = []
    for helper in (
        [{"role": "user", "content": "A title, please."}],
        [own[0], {"role": "user", "content": "In short?"}],
    ):
        causes.append(explained(client, "titled", helper)["cause"])
        for text in ("On.", "And on.", "More."):
            own.append(question(text))
            causes.append(explained(client, "titled", own)["cause"])

    assert causes == ["branch", "none", "none", "none", "compacted", "none", "none", "none"]


def test_a_prompt_that_was_never_computed_is_no_last_one(tmp_path: Path) -> None:
    """Its client left before its worker came to it; the next one is compared with what came before."""
    options = ["--enable-debug-headers"]
    with (
        simulated_service(
            tmp_path, "--sim-max-model-len", "16384", "--sim-prefill-rate", "4000", coordinator_options=options
        ) as service,
        httpx.Client(base_url=service.url, timeout=30) as client,
    ):
        messages = [system("a")]
        explained(client, "left", messages)
        messages.append(question("Go. " * 2000))
        with pytest.raises(httpx.ReadTimeout):
            client.post(
                "/v1/chat/completions", json={"messages": messages}, headers={"X-Session-ID": "left"}, timeout=0.3
            )

        assert explained(client, "left", messages)["cause"] == "none"


def test_what_the_cache_lost_is_evicted(client: httpx.Client) -> None:
    """The prompt goes on, and other prompts have taken its place in the cache."""
    messages = [system("evicted"), question("Go.")]
    explained(client, "evicted", messages)
    assert client.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 1}).status_code == 200
    for number in range(40):
        body = {"messages": [question(f"{number} " * 40)], "max_tokens": 1}
        assert client.post("/v1/chat/completions", json=body).status_code == 200
    messages.append(question("On."))

    assert explained(client, "evicted", messages)["cause"] == "evicted"


def test_another_rendering_of_the_same_messages_is_the_template(client: httpx.Client) -> None:
    """Such as that of other options: no message is to blame."""
    messages = [system("a"), question("Go.")]
    explained(client, "template", messages, chat_template=TEMPLATE, chat_template_kwargs={"mood": "a"})
    found = explained(client, "template", messages, chat_template=TEMPLATE, chat_template_kwargs={"mood": "b"})

    assert found["cause"] == "template"
    assert "message" not in found
    assert json.loads(found["text"]).startswith("b" + messages[0]["content"][:40])


def test_new_weights_are_a_cause(client: httpx.Client, tmp_path: Path) -> None:
    """The update cleared the cache."""
    messages = [system("weights"), question("Go.")]
    explained(client, "weights", messages)
    updated = client.post("/v1/rl/update_weights", json={"weight_dir": str(tmp_path)})
    assert updated.status_code == 200, updated.text
    messages.append(question("On."))

    assert explained(client, "weights", messages)["cause"] == "weights"


def test_an_adapter_that_was_loaded_anew_has_new_weights(client: httpx.Client, tmp_path: Path) -> None:
    """Nothing that the former one computed is used, though the name and the model's own weights are the same."""
    messages, lora = [system("adapter"), question("Go.")], {"lora_name": "tuned", "lora_path": str(tmp_path)}
    causes = []
    for load_inplace in (False, True):
        loaded = client.post("/v1/load_lora_adapter", json={**lora, "load_inplace": load_inplace})
        assert loaded.status_code == 200, loaded.text
        for _ in range(2):
            causes.append(explained(client, "adapter", messages, model="tuned").get("cause"))
            messages.append(question("On."))

    assert causes == [None, "none", "weights", "none"]


def test_another_worker_is_a_cause(tmp_path: Path) -> None:
    """Here two workers take turns."""
    options = ["--enable-debug-headers", "--routing", "round-robin"]
    with (
        simulated_service(tmp_path, "--sim-max-model-len", "16384", workers=2, coordinator_options=options) as service,
        httpx.Client(base_url=service.url, timeout=30) as client,
    ):
        wait_routable(service.url, 2)
        messages = [system("a"), question("Go.")]
        assert explained(client, "moved", messages) == {}
        messages.append(question("On."))
        assert explained(client, "moved", messages)["cause"] == "other_worker"
        messages.append(question("And on."))
        assert explained(client, "moved", messages)["cause"] == "other_worker"


def test_prompts_without_messages_are_compared_by_their_ids(client: httpx.Client) -> None:
    """A text that goes on, one with another word in it, and another one; the header shows the prompt at that place."""

    def of_text(prompt: str | list[str]) -> str:
        body = {"prompt": prompt, "max_tokens": 1}
        reply = client.post("/v1/completions", json=body, headers={"X-Session-ID": "completions"})
        assert reply.status_code == 200, reply.text
        return str(reply.headers.get("x-tokenwire-prefix", ""))

    assert of_text(TASK + "at noon." + TASK) == ""
    assert of_text(TASK + "at noon." + TASK + "More.").startswith("cause=none; ")
    edited = of_text(TASK + "at nine." + TASK + "More.")
    assert edited.startswith("cause=edited; ")
    assert "at nine." in edited
    assert "message=" not in edited
    assert of_text("Go. " + TASK + TASK).startswith("cause=branch; tokens=0; ")
    assert of_text([TASK, TASK]) == ""


def test_requests_without_a_session_have_no_header(client: httpx.Client) -> None:
    """Nothing is kept of them."""
    reply = client.post("/v1/chat/completions", json={"messages": [question("Go.")], "max_tokens": 1})

    assert "x-tokenwire-prefix" not in reply.headers
