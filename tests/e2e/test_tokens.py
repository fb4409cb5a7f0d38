"""Token-in, token-out over HTTP: ids in and ids out, on every contract."""

import json
import threading
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from tests.e2e.posting import post
from tests.processes import Service, coordinator, simulated_service, simulated_worker
from tokenwire.v1 import control_pb2, control_pb2_grpc

pytestmark = pytest.mark.slow

PROMPT = [72, 105, 33]
GREEDY = {"temperature": 0, "max_tokens": 12, "logprobs": 1}
MESSAGES = [{"role": "user", "content": "Hi"}]


def events(text: str) -> list[Any]:
    """Return the objects of a stream that ended properly."""
    *blocks, done, end = text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    return [json.loads(block.removeprefix("data: ")) for block in blocks]


def test_streamed_ids_equal_full_ones(service: Service) -> None:
    """The same ids and log-probabilities; the request's id is the client's."""
    body = {"token_ids": PROMPT, "sampling_params": GREEDY}
    full = post(service, "/inference/v1/generate", body, **{"X-Request-Id": "mine"})
    stream = httpx.post(service.url + "/inference/v1/generate", json={**body, "stream": True}, timeout=30)
    chunks = [chunk["choices"][0] for chunk in events(stream.text)]

    (choice,) = full["choices"]
    assert full["request_id"] == "generate-tokens-mine"
    assert choice["token_ids"] == [token_id for chunk in chunks for token_id in chunk["token_ids"]]
    content = choice["logprobs"]["content"]
    assert content == [entry for chunk in chunks for entry in chunk["logprobs"]["content"]]
    assert [entry["token"] for entry in content] == [f"token_id:{token_id}" for token_id in choice["token_ids"]]
    assert choice["weight_versions"] == chunks[-1]["weight_versions"] == [{"version": "default", "start": 0, "end": 12}]


def test_stop_strings_end_ids(service: Service) -> None:
    """They are searched for in text that is not returned; the ids end with the token that completed the match."""
    body = {"token_ids": PROMPT, "sampling_params": {"temperature": 0, "max_tokens": 60}, "output_mode": "text"}
    text = post(service, "/inference/v1/generate", body)["choices"][0]["text"]
    stop = text[5:8]

    ended = post(
        service,
        "/inference/v1/generate",
        {"token_ids": PROMPT, "sampling_params": {"temperature": 0, "max_tokens": 60, "stop": [stop]}},
    )

    (choice,) = ended["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    shown = post(service, "/detokenize", {"tokens": choice["token_ids"]})["prompt"]
    assert stop in shown
    assert stop not in post(service, "/detokenize", {"tokens": choice["token_ids"][:-1]})["prompt"]


def test_all_routes_have_the_same_prompt(service: Service) -> None:
    """Ids of a rendering, of a chat, and given directly: one prompt, one completion."""
    tokens = post(service, "/tokenize", {"messages": MESSAGES})["tokens"]
    chat = {"messages": MESSAGES, "return_token_ids": True, "temperature": 0, "max_tokens": 12}
    rendered = post(service, "/v1/chat/completions", chat)
    given = post(service, "/v1/chat/completions/tokens", {**chat, "tokens": tokens})

    assert rendered["prompt_token_ids"] == given["prompt_token_ids"] == tokens
    assert rendered["choices"] == given["choices"]
    assert post(service, "/v1/tokenize", {"messages": MESSAGES, "tools": None})["tokens"] == tokens
    assert post(service, "/v1/detokenize", {"tokens": tokens}) == post(service, "/detokenize", {"tokens": tokens})


def test_tokens_replace_the_rendering(service: Service) -> None:
    """The prompt is the ids, not the messages; streamed too."""
    body = {"messages": MESSAGES, "tokens": PROMPT, "temperature": 0, "max_tokens": 5, "return_token_ids": True}

    full = post(service, "/v1/chat/completions/tokens", body)
    response = httpx.post(service.url + "/v1/chat/completions/tokens", json={**body, "stream": True}, timeout=30)
    first, *chunks = events(response.text)

    assert full["prompt_token_ids"] == first["prompt_token_ids"] == PROMPT
    streamed = [token_id for chunk in chunks for token_id in chunk["choices"][0]["token_ids"]]
    assert full["choices"][0]["token_ids"] == streamed
    expected = {"token_ids": PROMPT, "sampling_params": {"temperature": 0, "max_tokens": 5}}
    assert post(service, "/inference/v1/generate", expected)["choices"][0]["token_ids"] == streamed


def test_all_contracts_return_the_same_ids(service: Service) -> None:
    """SGLang's and TRL's, with and without a trailing slash, streamed or not."""
    expected = post(service, "/inference/v1/generate", {"token_ids": PROMPT, "sampling_params": GREEDY})
    ids = expected["choices"][0]["token_ids"]
    logprobs = [entry["logprob"] for entry in expected["choices"][0]["logprobs"]["content"]]
    sglang = {"input_ids": PROMPT, "sampling_params": {"temperature": 0, "max_new_tokens": 12}, "return_logprob": True}

    trl = post(service, "/generate/", {"prompts": [PROMPT, PROMPT], "temperature": 0, "max_tokens": 12})
    full = post(service, "/generate", sglang)
    chunks = events(httpx.put(service.url + "/generate", json={**sglang, "stream": True}, timeout=30).text)

    assert (trl["prompt_ids"], trl["completion_ids"]) == ([PROMPT, PROMPT], [ids, ids])
    assert trl["logprob_token_ids"] == [[[token_id] for token_id in ids]] * 2
    assert full["output_ids"] == chunks[-1]["output_ids"] == ids
    assert full["meta_info"]["output_token_logprobs"] == [
        [logprob, token_id, None] for logprob, token_id in zip(logprobs, ids, strict=True)
    ]
    assert {**chunks[-1], "meta_info": None} == {**full, "meta_info": None}


def test_conversations_of_trl_are_chats(service: Service) -> None:
    """The same prompt and completion as on the chat route."""
    chat = {"messages": MESSAGES, "return_token_ids": True, "temperature": 0, "max_tokens": 12}
    expected = post(service, "/v1/chat/completions", chat)

    answer = post(service, "/chat/", {"messages": [MESSAGES], "temperature": 0, "max_tokens": 12, "logprobs": None})

    assert answer["prompt_ids"] == [expected["prompt_token_ids"]]
    assert answer["completion_ids"] == [expected["choices"][0]["token_ids"]]
    assert answer["logprobs"] is None


@pytest.mark.parametrize("form", ["json", "binary"])
def test_sequences_are_scored_after_their_prompts(service: Service, form: str) -> None:
    """One position for each token of the completion."""
    body = {"sequences": [PROMPT, [*PROMPT, 5]], "prompt_lengths": [1, 3], "top_logprobs": 2, "response_format": form}

    answer = post(service, "/get_sequence_logprobs/", body)

    if form == "binary":
        assert (answer["shape"], answer["completion_lengths"]) == ([2, 2, 2], [2, 1])
    else:
        assert [len(positions) for positions in answer["logprobs"]] == [2, 1]


TOO_LONG = [
    ("/v1/completions", {"prompt": [1] * 2049}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x " * 2500}]}),
    ("/v1/chat/completions/tokens", {"messages": MESSAGES, "tokens": [1] * 2048}),
    ("/inference/v1/generate", {"token_ids": [1] * 3000, "sampling_params": {}}),
    ("/generate", {"input_ids": [1] * 2048}),
    ("/generate/", {"prompts": [[1] * 2049]}),
    ("/get_sequence_logprobs/", {"sequences": [[1] * 2049], "prompt_lengths": [1]}),
]


@pytest.mark.parametrize(("path", "body"), TOO_LONG)
@pytest.mark.parametrize("stream", [False, True])
def test_prompts_that_are_too_long_get_one_message(
    service: Service, path: str, body: dict[str, Any], stream: bool
) -> None:
    """A 400, streamed or not, with the phrases that clients match on."""
    response = httpx.post(service.url + path, json={**body, "stream": stream}, timeout=30)

    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, 400, "input_tokens")
    assert "This model's maximum context length is 2048 tokens." in error["message"]
    assert "which is longer than the maximum model length of 2048." in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/inference/v1/generate", {"token_ids": [10**6], "sampling_params": {}}, 400, "token_ids"),
        ("/inference/v1/generate", {"token_ids": [10**30], "sampling_params": {}}, 400, "token_ids"),
        ("/inference/v1/generate", {"token_ids": PROMPT}, 400, "sampling_params"),
        ("/inference/v1/generate", {"token_ids": PROMPT, "sampling_params": {}, "model": "x"}, 404, "model"),
        ("/inference/v1/generate", {"token_ids": PROMPT, "sampling_params": {}, "features": {"a": 1}}, 400, "features"),
        ("/v1/chat/completions/tokens", {"messages": MESSAGES, "tokens": [-1]}, 400, "tokens"),
        ("/v1/chat/completions/tokens", {"messages": MESSAGES}, 400, "tokens"),
        ("/v1/chat/completions/tokens", {"messages": MESSAGES, "tokens": PROMPT, "model": "x"}, 404, "model"),
        ("/inference/v1/abort_requests", {}, 400, "request_ids"),
        ("/abort_requests", {}, 403, None),
        ("/abort_request", {"abort_all": True}, 403, None),
        ("/abort_request", {}, 400, "rid"),
        ("/generate", {"input_ids": [10**6]}, 400, "input_ids"),
        ("/generate", {"input_ids": PROMPT, "image_data": "x"}, 400, "image_data"),
        ("/generate", {"input_ids": PROMPT, "sampling_params": {"stop_regex": "x"}}, 400, "stop_regex"),
        ("/generate/", {"prompts": []}, 400, "prompts"),
        ("/generate/", {"prompts": [[10**6]]}, 400, "prompts"),
        ("/chat/", {"messages": [[{"role": "user", "content": [{"type": "image_pil"}]}]]}, 400, "messages"),
    ],
)
def test_invalid_requests_have_their_status(
    service: Service, path: str, body: dict[str, Any], status: int, param: str | None
) -> None:
    """And the name of the field."""
    response = httpx.post(service.url + path, json=body, timeout=30)

    assert (response.status_code, response.json()["error"]["param"]) == (status, param)


def test_an_abort_returns_the_output_so_far(tmp_path: Path) -> None:
    """A request of one coordinator, aborted through another one, gets its ids so far and a 200."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    options = ("--sim-step-ms", "5", "--sim-max-model-len", "100000")
    with (
        simulated_worker(tmp_path, *options) as (worker, address),
        coordinator(tmp_path, [address]) as (first, url),
        coordinator(elsewhere, [address]) as (_, other),
    ):
        service = Service(first, url, [worker], [address])
        answers: list[httpx.Response] = []

        def generate() -> None:
            body = {"request_id": "mine", "token_ids": PROMPT, "sampling_params": {"ignore_eos": True, "n": 2}}
            answers.append(httpx.post(f"{url}/inference/v1/generate", json=body, timeout=60))

        thread = threading.Thread(target=generate)
        thread.start()
        service.wait_slots(2)
        aborted = httpx.post(f"{other}/abort_requests", json={"request_ids": ["generate-tokens-mine"]}, timeout=30)
        thread.join()

    assert aborted.json() == {"status": "aborted", "aborted": 2}
    (answer,) = answers
    assert answer.status_code == 200
    assert [choice["finish_reason"] for choice in answer.json()["choices"]] == ["abort", "abort"]


def test_completions_are_read_by_their_ids(service: Service) -> None:
    """The requests and responses of AReaL and TRL: ids in, and names of ids in log-probabilities."""
    body = {
        **{"prompt": PROMPT, "n": 1, "max_tokens": 6, "temperature": 0, "top_k": -1, "stop_token_ids": [0]},
        **{"logprobs": 0, "return_tokens_as_token_ids": True, "return_token_ids": True, "use_beam_search": False},
    }

    (choice,) = post(service, "/v1/completions", body)["choices"]

    assert choice["prompt_token_ids"] == PROMPT
    names = [f"token_id:{token_id}" for token_id in choice["token_ids"]]
    assert choice["logprobs"]["tokens"] == names
    assert [list(top) for top in choice["logprobs"]["top_logprobs"]] == [[name] for name in names]


WITH_IDS = {"ignore_eos": True, "max_tokens": 200, "return_token_ids": True}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/inference/v1/generate", {"token_ids": PROMPT, "sampling_params": {"ignore_eos": True, "max_tokens": 200}}),
        ("/v1/completions", {"prompt": PROMPT, **WITH_IDS}),
        ("/v1/chat/completions", {"messages": MESSAGES, **WITH_IDS}),
        ("/v1/chat/completions/tokens", {"messages": MESSAGES, "tokens": PROMPT, **WITH_IDS}),
    ],
)
def test_new_weights_mid_reply_are_reported(tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    """The spans of a reply with two versions are adjacent and cover all of its ids."""
    with simulated_service(tmp_path, "--sim-step-ms", "5") as service:
        choices: list[Any] = []
        with httpx.stream("POST", service.url + path, json={**body, "stream": True}, timeout=30) as stream:
            for line in stream.iter_lines():
                if line.startswith("data: {"):
                    choices += json.loads(line.removeprefix("data: "))["choices"]
                if len(choices) == 6:
                    _label_weights(service, "v2")

    assert [choice.get("weight_versions") for choice in choices[:-1]] == [None] * (len(choices) - 1)
    first, second = choices[-1]["weight_versions"]
    assert (first["version"], second["version"]) == ("default", "v2")
    assert (first["start"], first["end"], second["end"]) == (0, second["start"], 200)
    assert first["end"] >= 5


@pytest.mark.parametrize(
    ("path", "prompt"),
    [
        ("/v1/completions", {"prompt": PROMPT}),
        ("/v1/chat/completions", {"messages": MESSAGES}),
        ("/v1/chat/completions/tokens", {"messages": MESSAGES, "tokens": PROMPT}),
    ],
)
def test_full_replies_with_ids_have_weight_versions(service: Service, path: str, prompt: dict[str, Any]) -> None:
    """Each choice has its own; without requested ids there are only OpenAI's fields."""
    body = {**prompt, "n": 2, "max_tokens": 3, "ignore_eos": True}
    versioned = post(service, path, {**body, "return_token_ids": True})["choices"]

    assert [choice["weight_versions"] for choice in versioned] == [[{"version": "default", "start": 0, "end": 3}]] * 2
    assert all("weight_versions" not in choice for choice in post(service, path, body)["choices"])


def _label_weights(service: Service, version: str) -> None:
    with grpc.insecure_channel(service.addresses[0]) as channel:
        request = control_pb2.SetWeightVersionRequest(weight_version=version)
        control_pb2_grpc.ControlStub(channel).SetWeightVersion(request, timeout=10)
