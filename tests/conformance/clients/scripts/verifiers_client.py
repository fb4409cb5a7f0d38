"""verifiers' token client: a rollout of three turns, each of which extends the ids of the one before bit for bit."""

import asyncio
import logging
import os
import sys

from verifiers.legacy.clients.openai_chat_completions_token_client import OpenAIChatCompletionsTokenClient
from verifiers.legacy.errors import OverlongPromptError
from verifiers.legacy.types import ClientConfig, State, UserMessage
from verifiers.legacy.utils.response_utils import parse_response_message, parse_response_tokens

MODEL = "smollm2-135m-instruct"
SAMPLING = {"temperature": 1.0, "max_tokens": 400, "extra_body": {"stop_token_ids": [2], "logit_bias": {"2": 6}}}


class Warnings(logging.Handler):
    """Keeps what the client warns of: it does so when it has to tokenize again."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record.getMessage())


async def main() -> None:
    """Roll out, then request too much."""
    os.environ["KEY"] = "unused"
    config = ClientConfig(
        client_type="openai_chat_completions_token",
        api_key_var="KEY",
        api_base_url=f"{sys.argv[1]}/v1",
        max_retries=0,
        extra_headers_from_state={"X-Session-ID": "trajectory_id"},
    )
    client = OpenAIChatCompletionsTokenClient(config)
    warnings = Warnings()
    client.logger.addHandler(warnings)
    state = State(trajectory=[], model=MODEL, trajectory_id="rollout-1")
    prompt = [UserMessage(content="Name a colour.")]
    before: list[int] = []
    for turn in range(3):
        response = await client.get_response(prompt, MODEL, dict(SAMPLING), None, state=state)
        tokens = await parse_response_tokens(response)
        assert tokens is not None, "the reply came without ids"
        assert response.message.finish_reason == "stop", response.message.finish_reason
        assert tokens["prompt_ids"][: len(before)] == before, f"turn {turn} does not extend the one before"
        assert len(tokens["completion_logprobs"]) == len(tokens["completion_ids"]) > 0
        completion = await parse_response_message(response)
        step = {"prompt": prompt, "completion": completion, "response": response, "tokens": tokens}
        state["trajectory"].append(step)
        before = tokens["prompt_ids"] + tokens["completion_ids"]
        prompt = [*prompt, *completion, UserMessage(content="And another one?")]
    assert not warnings.seen, warnings.seen

    try:
        long = [UserMessage(content="word " * 3000)]
        await client.get_response(long, MODEL, dict(SAMPLING), None, state=State(trajectory=[], model=MODEL))
    except OverlongPromptError:
        pass
    else:
        raise AssertionError("a prompt that is too long was not recognized")


asyncio.run(main())
