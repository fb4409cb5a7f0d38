"""Has workers expand chats with pictures, without a picture in a reply and without keeping others waiting."""

from array import array
from collections.abc import Sequence
from dataclasses import replace

from tokenwire.coordinator.generation import limits
from tokenwire.coordinator.generation.media import MediaPrompts
from tokenwire.coordinator.generation.prompts import PreparedPrompt, prepare_prompt
from tokenwire.coordinator.http.backpressure import BodyMemory
from tokenwire.coordinator.media.content import MediaContent
from tokenwire.coordinator.types import ChatPrompt, ServedModel
from tokenwire.errors import InvalidRequest
from tokenwire.process.value_class import value_class


@value_class
class PictureChat:
    """A chat whose pictures are loaded."""

    prompt: ChatPrompt
    items: Sequence[MediaContent]
    model: ServedModel
    options_json: str | None = None
    """Options of the request for its media."""
    cache_salt: str | None = None
    share: str = ""
    """Whose it is."""


async def expand_chat(
    media: MediaPrompts, prepared: PreparedPrompt, chat: PictureChat, must_fit: bool, body: BodyMemory | None
) -> PreparedPrompt:
    """Return a chat's prompt as the engine sees it; others have the turn of its body meanwhile.

    must_fit: as for `prepare_prompt`. Raises InvalidRequest and what MediaExpander does.
    """
    limits.check_length(len(prepared.token_ids), chat.model)
    if body is not None:
        body.end_turn()  # a worker may take long to answer
    # While many wait for it, ids take no more than the bodies that they are of.
    prepared = replace(prepared, token_ids=array("I", prepared.token_ids))
    try:
        return await _expanded(media, prepared, chat)
    except InvalidRequest:
        if not prepared.reused:
            raise
    # A reply among the reused ids has a placeholder that the model wrote itself.
    whole = await prepare_prompt(replace(chat.prompt, history=None), chat.model, must_fit=must_fit)
    whole = await _expanded(media, replace(whole, history=prepared.history and prepared.history.anew()), chat)
    if whole.media is not None and whole.media.leaves_placeholder():
        raise InvalidRequest(
            "A reply in this chat has the text of a placeholder for pictures, which would take one of these.",
            param="messages",
        )
    return whole


async def _expanded(media: MediaPrompts, prepared: PreparedPrompt, chat: PictureChat) -> PreparedPrompt:
    expanded = await media.expanded(
        prepared, chat.prompt.messages, chat.items, chat.model, chat.options_json, chat.cache_salt, chat.share
    )
    return replace(expanded, chat=chat.prompt)
