"""What a request reuses of its conversation and adds to it: continued replies, merged messages, recorded choices.

One file, since what is stored of one request is what the next one reuses.
"""

import tracemalloc
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.coordinator.history.dialogues import Dialogue
from tests.coordinator.history.models import TWICE, decoded, encoded, small_model
from tokenwire.coordinator.generation.prompts import PreparedPrompt
from tokenwire.coordinator.history.digests import Transcript
from tokenwire.coordinator.history.request_history import Destination, HistoryWriter, RequestHistory, SentReplies
from tokenwire.coordinator.history.store import MemoryStore
from tokenwire.coordinator.history.turns import Ending, Turn
from tokenwire.coordinator.output.collect import CollectedReply
from tokenwire.coordinator.text.template.messages import ChatMessage
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.coordinator.types import Finish, Prefill, ServedModel
from tokenwire.errors import EngineFailed

Replies = Sequence[Mapping[str, Any]]
USER: ChatMessage = {"role": "user", "content": "One?"}
MORE: ChatMessage = {"role": "user", "content": "Two?"}
OPEN = TemplateOptions(add_generation_prompt=False, continue_final_message=True)


class RecordedHistory(RequestHistory):
    """Collects the replies that it is given."""

    def __init__(self) -> None:
        super().__init__(None, None)
        self.kept: list[tuple[Replies, Sequence[int], Ending]] = []

    def store(self, prompt: Sequence[int], reply: Replies, completion: Sequence[int], ending: Ending) -> None:
        """Collect the reply."""
        self.kept.append((reply, list(completion), ending))


async def test_a_cut_reply_is_continued_by_its_ids(model: ServedModel) -> None:
    """continue_final_message: a cut reply is the prompt unchanged; an ended one is rendered open."""
    for ending, expected in (("cut", True), ("stop", False), ("token", False)):
        dialogue = Dialogue(model)
        dialogue.answer(await dialogue.prepare(USER), encoded(model, "Ye"), ending, content="Ye")  # type: ignore[arg-type]
        dialogue.options = TemplateOptions(add_generation_prompt=False, continue_final_message=True)
        prompt = await dialogue.prepare()

        assert (list(prompt.token_ids) == dialogue.ids and prompt.reused > 0) == expected


async def test_a_continued_message_is_found_as_one(model: ServedModel) -> None:
    """The client joins both parts, and so does the history."""
    unfinished: ChatMessage = {"role": "assistant", "content": "Ye"}
    dialogue = Dialogue(model, messages=[USER, unfinished])
    dialogue.options = TemplateOptions(add_generation_prompt=False, continue_final_message=True)
    dialogue.answer(await dialogue.prepare(), encoded(model, "s<|im_end|>"), content="s")
    dialogue.messages[1:] = [{"role": "assistant", "content": "Yes"}]
    dialogue.options = TemplateOptions()

    assert list((await dialogue.prepare(MORE)).token_ids[: len(dialogue.ids)]) == dialogue.ids


async def cut_twice(dialogue: Dialogue) -> PreparedPrompt:
    """Get a reply, and continue it twice after a cut; return the first prompt."""
    first = await dialogue.prepare(MORE)
    dialogue.answer(first, encoded(dialogue.model, "<think>So"), "cut", content=None, reasoning="So")
    dialogue.options = OPEN
    for ids, more, full in (
        (" be it</think>", {"content": None, "reasoning": " be it"}, {"content": "", "reasoning": "So be it"}),
        ("It", {"content": "It"}, {"content": "It", "reasoning": "So be it"}),
    ):
        dialogue.answer(await dialogue.prepare(), encoded(dialogue.model, ids), "cut", **more)
        dialogue.messages[-2:] = [{"role": "assistant", **full}]
    return first


async def test_a_partial_closing_of_two_replies_is_completed_once() -> None:
    """A reply may be cut in the middle of its closing, continued, and cut there again."""
    model = small_model(TWICE)
    dialogue = Dialogue(model)
    dialogue.answer(await dialogue.prepare(USER), encoded(model, "Yes<|close|>text"), "cut", content="Yes")
    dialogue.options = OPEN
    dialogue.answer(await dialogue.prepare(), encoded(model, "<|sep|>"), "cut", content="")
    del dialogue.messages[-1]
    dialogue.options = TemplateOptions()

    prompt = await dialogue.prepare(MORE)

    assert prompt.reused == len(dialogue.ids)
    assert decoded(model, list(prompt.token_ids[prompt.reused :])).startswith("<|close|>turn<|sep|><|open|>user")


@pytest.mark.parametrize("follows", [False, True])
async def test_all_of_a_continued_message_is_new(model: ServedModel, follows: bool) -> None:
    """Its text so far decides whether its reasoning is over, however often it was cut; earlier messages do not."""
    dialogue = Dialogue(model)
    if follows:
        dialogue.answer(
            await dialogue.prepare(USER), encoded(model, "Yes<|im_end|>"), content="Yes", reasoning="before"
        )
    first = await cut_twice(dialogue)

    prompt = await dialogue.prepare()

    assert list(prompt.new_ids) == [*first.new_ids, *encoded(model, "<think>So be it</think>It")]
    assert list(prompt.token_ids[-len(prompt.new_ids) :]) == list(prompt.new_ids)
    assert (len(prompt.new_ids) < len(prompt.token_ids)) == follows


async def test_reasoning_of_a_continued_message_is_joined(model: ServedModel) -> None:
    """The next request has it as one text, or omits it; half of it is another message."""
    dialogue = Dialogue(model)
    await cut_twice(dialogue)
    for reasoning, expected in (("So be it", len(dialogue.ids)), (None, len(dialogue.ids)), ("So", 0)):
        messages = [dialogue.messages[0], {"role": "assistant", "content": "It", "reasoning": reasoning}]
        again = Dialogue(model, dialogue.history, messages=messages)
        assert (await again.prepare(USER)).reused == expected, reasoning


async def test_a_clients_own_reasoning_must_stay(model: ServedModel) -> None:
    """It was not generated here, even if the rest of its message was."""
    unfinished: ChatMessage = {"role": "assistant", "content": "Ye", "reasoning": "hm"}
    dialogue = Dialogue(model, messages=[USER, unfinished], options=OPEN)
    dialogue.answer(await dialogue.prepare(), encoded(model, "s<|im_end|>"), content="s")
    for reasoning, expected in (("hm", len(dialogue.ids)), (None, 0)):
        messages: list[ChatMessage] = [USER, {"role": "assistant", "content": "Yes", "reasoning": reasoning}]
        again = Dialogue(model, dialogue.history, messages=messages)
        assert (await again.prepare(MORE)).reused == expected, reasoning


@pytest.mark.parametrize(
    "unfinished",
    [{"role": "user", "content": "Ye"}, {"role": "assistant", "content": [{"type": "text", "text": "Ye"}]}],
)
async def test_an_ambiguous_continuation_is_not_stored(model: ServedModel, unfinished: ChatMessage) -> None:
    """A message of another role, or one of parts, cannot be joined with its continuation."""
    dialogue = Dialogue(model, messages=[USER, unfinished], options=OPEN)
    dialogue.answer(await dialogue.prepare(), encoded(model, "s<|im_end|>"), content="s")
    messages: list[ChatMessage] = [USER, {**unfinished, "content": "Yes"}]

    assert (await Dialogue(model, dialogue.history, messages=messages).prepare(MORE)).reused == 0


async def test_a_reply_may_be_sent_back_as_several_messages(model: ServedModel) -> None:
    """Some routes return text after a call as another message: the last one ends the turn."""
    dialogue = Dialogue(model)
    prompt = await dialogue.prepare(USER)
    reply: list[ChatMessage] = [
        {"role": "assistant", "content": "a", "reasoning": "so", "tool_calls": [{"function": {"name": "f"}}]},
        {"role": "assistant", "content": "b"},
    ]
    ids = encoded(model, "ab<|im_end|>")
    assert prompt.history is not None
    prompt.history.store(prompt.token_ids, reply, ids, "token")

    for first, expected in (
        (reply[0], True),
        ({**reply[0], "reasoning": None}, True),
        ({**reply[0], "reasoning": "no"}, False),
    ):
        following = await Dialogue(model, dialogue.history, messages=[USER, first, reply[1]]).prepare(MORE)
        assert (list(following.token_ids[: following.reused]) == [*prompt.token_ids, *ids]) == expected


async def test_a_continued_message_may_be_sent_back_with_others(model: ServedModel) -> None:
    """The first of the reply's messages continues it. The reasoning of the others was generated here."""
    unfinished: ChatMessage = {"role": "assistant", "content": "Ye", "reasoning": "hm"}
    dialogue = Dialogue(model, messages=[USER, unfinished], options=OPEN)
    prompt, ids = await dialogue.prepare(), encoded(model, "s<|im_end|>")
    call = {"function": {"name": "f"}}
    reply: list[ChatMessage] = [
        {"role": "assistant", "content": "s", "tool_calls": [call]},
        {"role": "assistant", "content": "b", "reasoning": "so"},
    ]
    assert prompt.history is not None
    prompt.history.store(prompt.token_ids, reply, ids, "token")

    for reasoning in ("so", None):
        messages = [USER, {**unfinished, "content": "Yes", "tool_calls": [call]}, {**reply[1], "reasoning": reasoning}]
        following = await Dialogue(model, dialogue.history, messages=messages).prepare(MORE)
        assert list(following.token_ids[: following.reused]) == [*prompt.token_ids, *ids], reasoning


async def test_reasoning_of_the_continuation_alone_may_be_omitted(model: ServedModel) -> None:
    """The client's part is text only; reasoning after that was generated here."""
    dialogue = Dialogue(model, messages=[USER, {"role": "assistant", "content": "Ye"}], options=OPEN)
    dialogue.answer(await dialogue.prepare(), encoded(model, "s<|im_end|>"), content="s", reasoning="so")
    for reasoning in ("so", None):
        messages: list[ChatMessage] = [USER, {"role": "assistant", "content": "Yes", "reasoning": reasoning}]
        assert (await Dialogue(model, dialogue.history, messages=messages).prepare(MORE)).reused == len(dialogue.ids)


async def test_a_clients_own_reasoning_must_stay_after_a_stored_turn(model: ServedModel) -> None:
    """Even if the conversation before it was generated here."""
    dialogue = Dialogue(model)
    dialogue.answer(await dialogue.prepare(USER), encoded(model, "Yes<|im_end|>"), content="Yes")
    first, dialogue.options = len(dialogue.ids), OPEN
    unfinished: ChatMessage = {"role": "assistant", "content": "N", "reasoning": "hm"}
    prompt = await dialogue.prepare(MORE, unfinished)
    assert prompt.reused == first
    dialogue.answer(prompt, encoded(model, "o<|im_end|>"), content="o")
    for reasoning, expected in (("hm", len(dialogue.ids)), (None, first)):
        messages = [*dialogue.messages[:3], {"role": "assistant", "content": "No", "reasoning": reasoning}]
        assert (await Dialogue(model, dialogue.history, messages=messages).prepare(USER)).reused == expected


def test_choices_share_the_turn_of_their_prompt() -> None:
    """The prompt of several choices is stored once."""

    turns: list[Turn] = []

    class Store(MemoryStore):
        def put(self, keys: Sequence[bytes], turn: Turn, share: str = "") -> None:
            turns.append(turn)

    transcript = Transcript(b"", [{"role": "user", "content": "One?"}], "string")
    history = RequestHistory(None, Destination(Store(1, 1.0), transcript, None))
    for text in "ab":
        history.store([1, 2], [{"role": "assistant", "content": text}], [3], "token")

    first, second = turns
    assert first.parent is second.parent
    assert list(first.all_ids()) == [1, 2, 3]


@pytest.mark.parametrize(
    ("finish", "ending"),
    [
        (Finish("stop"), "token"),
        (Finish("stop", 7), "token"),
        (Finish("stop", 8), "stop"),
        (Finish("stop", "STOP"), "stop"),
        (Finish("length"), "cut"),
        (Finish("abort"), "cut"),
        (Finish("repetition", "repetition_detected"), "cut"),
    ],
)
async def test_a_choice_is_stored_as_its_text_at_its_end(finish: Finish, ending: Ending) -> None:
    """Each choice separately; the wrapped reply receives everything unchanged."""
    history, reply = RecordedHistory(), CollectedReply(2)
    wrapped = HistoryWriter(history, [1], 2, parsed=False, end_token_ids=[7]).wrap(reply)

    wrapped.delta(1, "a", [5], None)
    wrapped.delta(0, "b", [6], None)
    assert history.kept == []
    wrapped.delta(1, "", [7], finish, [])

    assert history.kept == [([{"role": "assistant", "content": "a"}], [5, 7], ending)]
    wrapped.delta(0, "", [8], finish)
    assert [(wrapped.tokens_of(i), each.token_ids, each.logprobs) for i, each in enumerate(await reply.wait())] == [
        (2, [6, 8], None),
        (2, [5, 7], []),
    ]


async def test_a_requests_own_writer_stores_its_reply_for_the_next_one() -> None:
    """After its prompt, with its end; nothing where replies are not stored."""
    store, transcript = MemoryStore(1 << 20, 60.0), Transcript(b"", [USER], "string")
    history = RequestHistory(None, Destination(store, transcript, None))
    history_writer = history.writer([1, 2], 1, parsed=False, end_token_ids=[7])
    assert history_writer is not None
    assert (history.reused, history.source) == (0, None)

    history_writer.wrap(CollectedReply(1)).delta(0, "a", [3, 7], Finish("stop", 7))

    (turn,) = await store.find(transcript.reply_keys([{"role": "assistant", "content": "a"}]))
    assert turn is not None
    assert (list(turn.all_ids()), turn.ending) == ([1, 2, 3, 7], "token")
    assert RequestHistory(None, None).writer([1], 1, parsed=False, end_token_ids=[]) is None


async def test_a_later_request_tells_another_reply_from_those_sent() -> None:
    """Each choice may come back, in several messages too, with or without reasoning; other inputs tell nothing."""
    store = MemoryStore(1 << 20, 60.0)

    def of(*messages: ChatMessage, scope: bytes = b"") -> RequestHistory:
        return RequestHistory(None, Destination(store, Transcript(scope, messages, "string"), None))

    def reply(content: str, **fields: str) -> ChatMessage:
        return {"role": "assistant", "content": content, **fields}

    first = of(USER)
    assert first.writer([1], 2, parsed=True, end_token_ids=[]) is not None
    sent = first.sent
    assert sent is not None
    assert not of(USER, reply("c"), MORE).edits(sent, 1)  # none has ended
    first.store([1], [reply("a", reasoning="r")], [2], "token")
    first.store([1], [reply("b"), reply("b")], [2], "token")

    for same in ([reply("a")], [reply("a", reasoning="r")], [reply("b"), reply("b")], [MORE], [MORE, reply("c")]):
        assert not of(USER, *same, MORE).edits(sent, 1)
    for other in ([reply("c")], [reply("a", reasoning="R")], [reply("b")], [reply("b"), reply("c")]):
        assert of(USER, *other, MORE).edits(sent, 1)
    assert not of(USER, reply("c"), scope=b"other").edits(sent, 1)
    assert not RequestHistory(None, None).edits(sent, 1)


async def test_a_reply_whose_ids_were_found_is_no_other_one(model: ServedModel) -> None:
    """It may be that of a request beside the one that it is compared with."""
    dialogue = Dialogue(model)
    dialogue.answer(await dialogue.prepare(USER), encoded(model, "Yes<|im_end|>"), content="Yes")
    found = (await dialogue.prepare(MORE)).history

    assert found is not None
    assert found.writer([1], 1, parsed=True, end_token_ids=[]) is not None
    assert found.sent is not None
    assert not found.edits(SentReplies(found.sent.scope, 1, [b"another"]), 1)
    assert found.anew().edits(SentReplies(found.sent.scope, 1, [b"another"]), 1)


async def test_prefills_and_first_tokens_pass_through() -> None:
    """Usage and metrics have them where a reply is recorded too."""
    reply = CollectedReply(1)
    wrapped = HistoryWriter(RecordedHistory(), [1], 1, parsed=False, end_token_ids=[]).wrap(reply)

    wrapped.prefilled(0, Prefill(3))
    wrapped.first_tokens()

    assert (reply.progress.cached_tokens, reply.progress.first_at is None) == ([3], False)


async def test_a_failed_choice_is_not_stored() -> None:
    """Its output is no reply that the client would send back."""
    history, reply = RecordedHistory(), CollectedReply(1)
    wrapped = HistoryWriter(history, [1], 1, parsed=False).wrap(reply)

    wrapped.delta(0, "a", [5], None)
    wrapped.fail(EngineFailed("broken"))

    with pytest.raises(EngineFailed):
        await reply.wait()
    assert history.kept == []


async def test_a_parsed_choice_is_stored_as_it_was_returned() -> None:
    """The route that returns the message stores it; the text of its steps is not used."""
    history = RecordedHistory()
    history_writer = HistoryWriter(history, [1], 1, parsed=True)
    wrapped = history_writer.wrap(CollectedReply(1))
    wrapped.delta(0, "<think>so</think>", [5, 6], None)
    wrapped.delta(0, "Yes", [7], Finish("length"))
    assert history.kept == []

    shown: list[ChatMessage] = [{"role": "assistant", "content": "Yes", "reasoning": "so"}]
    history_writer.keep(0, shown)

    assert history.kept == [(shown, [5, 6, 7], "cut")]


async def test_unparsed_text_is_stored_once() -> None:
    """The route's own call stores nothing."""
    history = RecordedHistory()
    history_writer = HistoryWriter(history, [1], 1, parsed=False)
    history_writer.wrap(CollectedReply(1)).delta(0, "Yes", [5], Finish("stop"))

    history_writer.keep(0, [{"role": "assistant", "content": "No"}])

    assert history.kept == [([{"role": "assistant", "content": "Yes"}], [5], "token")]


def test_a_long_reply_keeps_little_of_a_token() -> None:
    """A list of its texts and ids would take a hundred bytes of each."""
    history_writer, count = HistoryWriter(RecordedHistory(), [1], 1, parsed=False), 20_000
    tracemalloc.start()
    for number in range(count):
        history_writer.on_delta(0, f" w{number}", [1000 + number], None)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert taken < count * 20
