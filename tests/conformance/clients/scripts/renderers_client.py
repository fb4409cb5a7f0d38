"""renderers' client: renders by itself, generates from ids, and believes only log-probabilities that name theirs."""

import asyncio
import sys

from openai import AsyncOpenAI
from renderers import DefaultRendererConfig
from renderers.base import create_renderer
from renderers.client import OverlongPromptError, generate
from transformers import AutoTokenizer

MODEL = "smollm2-135m-instruct"


async def main() -> None:
    """Generate once, and once too much."""
    renderer = create_renderer(AutoTokenizer.from_pretrained(sys.argv[2]), DefaultRendererConfig())
    async with AsyncOpenAI(base_url=f"{sys.argv[1]}/v1", api_key="unused", max_retries=0) as client:
        made = await generate(
            client=client,
            renderer=renderer,
            messages=[{"role": "user", "content": "Say hello."}],
            model=MODEL,
            sampling_params={"temperature": 1.0, "max_tokens": 24, "seed": 7, "reasoning_effort": "low"},
            cache_salt="policy-1",
            extra_headers={"X-Session-ID": "trace-1"},
        )
        assert len(made["completion_ids"]) == len(made["completion_logprobs"]) > 0
        assert made["finish_reason"] in ("stop", "length")
        assert made["usage"]["prompt_tokens"] == len(made["prompt_ids"])
        assert made["request_id"].startswith("generate-tokens-")
        try:
            await generate(
                client=client, renderer=renderer, messages=[{"role": "user", "content": "word " * 3000}], model=MODEL
            )
        except OverlongPromptError as error:
            assert error.max_prompt_len
        else:
            raise AssertionError("a prompt that is too long was not recognized")


asyncio.run(main())
