"""A plain vLLM server under attack: it says at once what is long of a reply, and in as many bytes as vLLM's does."""

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

from aiohttp import web

MODEL = "p"
_MOST_BODY = 2**30
_TOKEN = 70


def _scored(rank: int) -> dict[str, Any]:
    return {"logprob": -1.2345678 - rank, "rank": rank, "decoded_token": None}


def _position(token_id: int, count: int) -> str:
    others = {str((token_id + rank * 37) % 49_000): _scored(rank) for rank in range(2, count + 2)}
    return json.dumps({**others, str(token_id): _scored(1)})


def _content(count: int) -> str:
    likely = [{"token_id": _TOKEN + rank, "token": f"token_id:{rank}", **_scored(rank + 1)} for rank in range(count)]
    return json.dumps({**likely[0], "top_logprobs": likely})


def full_response(token_ids: list[int], params: Mapping[str, Any]) -> str:
    """Return a whole reply of all tokens that are asked for, with its log-probabilities and those of the prompt."""
    tokens, scored = int(params.get("max_tokens") or 1), params.get("prompt_logprobs")
    positions = ["null", *(_position(each, scored) for each in token_ids[1:])] if scored is not None else []
    content = [_content(params["logprobs"])] * tokens if params.get("logprobs") else []
    ids = json.dumps([_TOKEN] * tokens)
    choice = f'{{"index":0,"token_ids":{ids},"finish_reason":"length","logprobs":{{"content":[{",".join(content)}]}}}}'
    return f'{{"choices":[{choice}],"prompt_logprobs":[{",".join(positions)}],"kv_transfer_params":null}}'


async def plain_answer(request: web.Request) -> web.StreamResponse:
    """Respond to any request."""
    match request.path:
        case "/version":
            return web.json_response({"version": "0.32.0"})
        case "/v1/models":
            return web.json_response({"data": [{"id": MODEL, "root": MODEL, "parent": None, "max_model_len": 32_768}]})
        case "/inference/v1/generate":
            body = await request.json()
            if body.get("content_parts"):
                return web.json_response({"error": {"message": "p is not a multimodal model"}}, status=400)
            if not body["stream"]:
                text = full_response(body["token_ids"], body["sampling_params"])
                return web.Response(text=text, content_type="application/json")
            event = {"choices": [{"index": 0, "token_ids": [_TOKEN], "finish_reason": "length"}]}
            return web.Response(text=f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n", content_type="text/event-stream")
    return web.Response()


async def main() -> None:
    """Serve until this is ended."""
    app = web.Application(client_max_size=_MOST_BODY)
    app.router.add_route("*", "/{path:.*}", plain_answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write(f"ready: http://127.0.0.1:{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
