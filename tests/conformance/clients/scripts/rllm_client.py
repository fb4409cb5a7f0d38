"""rLLM's clients of its model gateway, sync and async: sessions, an agent below one, its traces, and the end of it."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from openai import OpenAI
from rllm_model_gateway import AsyncGatewayClient, GatewayClient

URL = sys.argv[1]
QUESTION = {"role": "user", "content": "Name a colour."}


@contextmanager
def refused_change() -> Iterator[None]:
    """Expect a 400 that says how workers are found."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        assert error.response.status_code == 400
        assert "--worker" in error.response.text
    else:
        raise AssertionError("it was not refused")


with GatewayClient(URL) as gateway:
    assert gateway.health() == {"status": "ok"}
    session = gateway.create_session(metadata={"task": 7})
    assert gateway.get_session_info(session)["trace_count"] == 0
    with OpenAI(base_url=gateway.get_session_url(session), api_key="none") as agent:
        model = agent.models.list().data[0].id
        first = agent.chat.completions.create(
            model=model, messages=[QUESTION], max_tokens=8, logprobs=True, extra_body={"return_token_ids": True}
        )
        said = {"role": "assistant", "content": first.choices[0].message.content}
        messages = [QUESTION, said, {"role": "user", "content": "Another."}]
        streamed = agent.chat.completions.create(model=model, messages=messages, max_tokens=8, stream=True)  # type: ignore[call-overload]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in streamed)
    assert gateway.flush()

    one, two = gateway.get_session_traces(session)
    assert one.prompt_token_ids == first.prompt_token_ids
    assert one.completion_token_ids == first.choices[0].token_ids
    assert one.logprobs == [each.logprob for each in first.choices[0].logprobs.content]
    assert one.finish_reason == first.choices[0].finish_reason
    assert two.messages == messages
    assert two.response_message["content"] == text
    assert two.logprobs is not None
    assert len(two.logprobs) == len(two.completion_token_ids) == two.token_counts["completion"]
    whole = one.prompt_token_ids + one.completion_token_ids
    assert two.prompt_token_ids[: len(whole)] == whole
    assert gateway.get_trace(two.trace_id) == two
    assert [trace.trace_id for trace in gateway.get_session_traces(session, since=two.timestamp)] == [two.trace_id]
    assert len(gateway.get_session_traces(session, limit=1)) == 1
    info = gateway.get_session_info(session)
    assert (info["trace_count"], info["metadata"]) == (2, {"task": 7})
    assert session in [each["session_id"] for each in gateway.list_sessions(limit=50)]
    assert gateway.delete_session(session) == 2

    assert all(worker.healthy and worker.model_name for worker in gateway.list_workers())
    with refused_change():
        gateway.add_worker("http://127.0.0.1:1/v1")
    with refused_change():
        gateway.remove_worker(gateway.list_workers()[0].worker_id)


async def use_async() -> None:
    """Use a named session with the async client."""
    async with AsyncGatewayClient(URL) as gateway:
        assert await gateway.create_session("rllm-async") == "rllm-async"
        assert await gateway.get_session_traces("rllm-async") == []
        assert (await gateway.get_session_info("rllm-async"))["session_id"] == "rllm-async"
        assert await gateway.flush()
        assert await gateway.delete_session("rllm-async") == 0


asyncio.run(use_async())
