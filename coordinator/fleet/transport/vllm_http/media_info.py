"""Which media a plain vLLM server takes: found out by a small request that it rejects."""

import logging
import re

from tokenwire.coordinator.fleet.transport.vllm_http.http_client import VllmHttpClient
from tokenwire.coordinator.fleet.transport.vllm_http.request import GENERATE
from tokenwire.errors import EngineFailed, InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)

_MOST_PICTURES = 1000
"""One more than servers take by default."""


async def probe_media(server: VllmHttpClient, model: str) -> list[pb.MediaKind]:
    """Return the kinds of media that the model takes; none if the server fails. Raises Unavailable.

    More pictures are named than a prompt may have, so the server says how many these are. It has none of them, and
    its engine hears of nothing.
    """
    part = {"type": "image_url", "url": None, "uuid": "tokenwire"}
    body = {
        "model": model,
        "token_ids": [0],
        "sampling_params": {"max_tokens": 1},
        "content_parts": [part] * _MOST_PICTURES,
    }
    try:
        await server.post(GENERATE, body)
    except InvalidRequest as error:
        said = re.search(r"At most (\d+) image", error.message)
        if said is not None and int(said[1]):
            return [pb.MediaKind(modality="image", limit=int(said[1]))]
        if "Cache miss for " in error.message:
            return [pb.MediaKind(modality="image", limit=_MOST_PICTURES)]
    except EngineFailed as error:  # another version's, which may well serve text
        log.warning("a plain vLLM server does not say which pictures it takes: %s", error.message)
    return []
