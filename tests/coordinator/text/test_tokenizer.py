"""The tokenizer is built from files, exact about special tokens, and does not block the event loop."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.coordinator.text import tiny
from tests.coordinator.text.tiny import BACKEND, byte_level_with
from tokenwire.coordinator.text.tokenizer import INLINE_CHARS, ModelTokenizer
from tokenwire.coordinator.text.word_ids import Words
from tokenwire.errors import InvalidRequest

BYTE_LEVEL = tiny.byte_level()
STRIPS = tiny.byte_fallback(strip=True)


def test_ids_and_text_of_the_embedded_model(smollm2: ModelTokenizer) -> None:
    """SmolLM2's ids for a text, and the text for its ids, with and without special tokens."""
    ids = smollm2.encode("<|im_start|>Hello 🙂", False)
    assert ids[0] == 1
    assert smollm2.decode(ids, skip_special_tokens=True) == "Hello 🙂"
    assert smollm2.decode(ids, skip_special_tokens=False) == "<|im_start|>Hello 🙂"


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("times", [1, 2000])
async def test_many_ids_are_decoded_beside_the_loop(smollm2: ModelTokenizer, times: int, skip: bool) -> None:
    """To the same text as on it."""
    ids = smollm2.encode("<|im_start|>Hello 🙂", False) * times
    assert await smollm2.decode_async(ids, skip) == smollm2.decode(ids, skip)
    assert [smollm2.token_to_str(i) for i in smollm2.encode("a b\n", False)] == ["a", "Ġb", "Ċ"]
    assert smollm2.token_to_str(10**6) is None
    assert smollm2.special_tokens["eos_token"] == "<|im_end|>"
    assert smollm2.max_chars_per_token >= 16


@pytest.mark.parametrize("vocabulary", [{"a": 0, "long": 1}, {"a": 0, "long": 9000}, {"a": 3, "long": 3}])
def test_the_longest_token_and_the_largest_id_are_known(vocabulary: dict[str, int]) -> None:
    """Also where ids have holes, or tokens share one."""
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "a"}
    tokenizer = ModelTokenizer.from_files({"tokenizer.json": json.dumps({"model": model}).encode()})
    assert (tokenizer.max_chars_per_token, tokenizer.largest_id) == (4, max(vocabulary.values()))


@pytest.mark.parametrize("trusted", [True, False])
def test_a_template_of_many_parts_is_only_that_of_an_operator(trusted: bool) -> None:
    """One that a worker brings would stop a coordinator while it is compiled."""
    files = {"tokenizer.json": BACKEND.encode(), "chat_template.jinja": b"{{[" + b"a," * 2**14 + b"]}}"}
    with nullcontext() if trusted else pytest.raises(InvalidRequest, match="16,384 parts"):
        ModelTokenizer.from_files(files, trusted=trusted)


class RecordingTokenizer(ModelTokenizer):
    """Records how many characters are encoded at once."""

    at_once: list[int]

    def _encode_all(
        self, texts: list[str], add_special_tokens: bool, found: Words | None = None
    ) -> list[Sequence[int]]:
        self.at_once.append(sum(map(len, texts)))
        return super()._encode_all(texts, add_special_tokens, found)


def test_a_long_conversation_is_encoded_in_parts(smollm2: ModelTokenizer) -> None:
    """To the same ids: until they are ids, encodings take a hundred bytes for each token."""
    text = "".join(f"<|im_start|>{'Hello, world! ' * 1000}{number}" for number in range(100))
    expected = smollm2.encode(text, add_special_tokens=True)
    tokenizer = object.__new__(RecordingTokenizer)
    tokenizer.__dict__ = {**smollm2.__dict__, "at_once": []}

    assert tokenizer.encode(text, add_special_tokens=False) == expected
    assert max(tokenizer.at_once) < len(text) / 2


def test_a_missing_directory_or_file_is_named(tmp_path: Path) -> None:
    """The error names the directory, the file in it, or the file among those given."""
    with pytest.raises(InvalidRequest, match=r"nowhere: there is no such directory"):
        ModelTokenizer.from_directory(tmp_path / "nowhere")
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(InvalidRequest, match=r"there is no tokenizer\.json in it"):
        ModelTokenizer.from_directory(tmp_path)
    with pytest.raises(InvalidRequest, match=r"has no tokenizer\.json \(only tokenizer\.model\)"):
        ModelTokenizer.from_files({"tokenizer.model": b""})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", "{}", "tokenizer.json cannot be read"),
        ("tokenizer_config.json", "{", "tokenizer_config.json is not JSON"),
        ("tokenizer_config.json", "[]", "tokenizer_config.json is not a JSON object"),
    ],
)
def test_damaged_files_are_named(name: str, content: str, message: str) -> None:
    """A file that cannot be read is named, with the reason."""
    with pytest.raises(InvalidRequest, match=message):
        ModelTokenizer.from_files({"tokenizer.json": BACKEND.encode(), name: content.encode()})


def test_a_directory_equals_its_files(tmp_path: Path) -> None:
    """A directory is read as its files, including additional templates."""
    (tmp_path / "tokenizer.json").write_text(BACKEND)
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<tool>", "chat_template": "old"}')
    (tmp_path / "chat_template.jinja").write_text("new")
    assert ModelTokenizer.from_directory(tmp_path).chat_template == "new"
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    tokenizer = ModelTokenizer.from_directory(tmp_path)
    assert tokenizer.chat_template == {"default": "new", "tool_use": "tools"}
    assert tokenizer.special_tokens == {"bos_token": "<tool>"}


def test_templates_may_be_text_or_a_list_by_name() -> None:
    """The config's template is a text or has a name; there may be none."""
    assert byte_level_with({"chat_template": "x"}).chat_template == "x"
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    assert byte_level_with({"chat_template": named}).chat_template == {"default": "d", "tool_use": "t"}
    assert byte_level_with().chat_template is None


def test_truncation_and_padding_of_the_file_are_off() -> None:
    """Settings left over in tokenizer.json do not shorten or lengthen prompts."""
    backend = tiny.byte_level().backend
    backend.enable_truncation(3)
    backend.enable_padding(length=50)
    tokenizer = byte_level_with(tokenizer__json=backend.to_str())
    assert len(tokenizer.encode("hello", False)) == 5


def test_an_unpaired_surrogate_is_rejected(smollm2: ModelTokenizer) -> None:
    """JSON can contain it; the request is invalid, whatever its length."""
    for text in ("a\ud800b", "a\ud800b" * INLINE_CHARS):
        with pytest.raises(InvalidRequest, match="surrogate"):
            smollm2.encode(text, False)


async def test_long_text_leaves_the_event_loop_free(smollm2: ModelTokenizer) -> None:
    """Other tasks run while a long text is encoded; the ids are the same as without a thread."""
    text = "The quick brown fox jumps over the lazy dog. " * 20_000
    assert len(text) > INLINE_CHARS
    task = asyncio.create_task(smollm2.encode_async(text, False))
    turns = 0
    while not task.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns >= 5
    assert [*await task] == smollm2.encode(text, False)
    assert [*await smollm2.encode_async("short", False)] == smollm2.encode("short", False)


async def test_concurrent_texts_are_independent(smollm2: ModelTokenizer) -> None:
    """Threads that share one tokenizer get the ids of their own text."""
    texts = [f"{i} one two three. " * 400 for i in range(12)]
    results = await asyncio.gather(*(smollm2.encode_async(text, False) for text in texts))
    assert [*map(list, results)] == [smollm2.encode(text, False) for text in texts]


@pytest.mark.npm
def test_real_tokenizers_round_trip_text(npm_tokenizer: ModelTokenizer) -> None:
    """Real models' tokenizers decode what they encode; add_special_tokens adds BOS if the model has one."""
    text = "Hello, wörld! 你好 🙂\n\tif x:"
    assert npm_tokenizer.decode(npm_tokenizer.encode(text, False)) == text
    first = npm_tokenizer.token_to_str(npm_tokenizer.encode(text, True)[0])
    starts = {"<bos>", "<|begin_of_text|>", "Hello"}
    assert first in starts


@given(before=st.text(min_size=1, max_size=6), token_id=st.integers(0, BYTE_LEVEL.largest_id))
def test_the_text_of_a_token_is_what_it_adds_to_any_text(before: str, token_id: int) -> None:
    """Also where the beginning of a text is stripped."""
    for tokenizer in (BYTE_LEVEL, STRIPS):
        ids = tokenizer.encode(before, add_special_tokens=False)
        text = tokenizer.texts[True][token_id]
        if text and tokenizer.decode(ids).strip():
            assert tokenizer.decode([*ids, token_id]) == tokenizer.decode(ids) + text


def test_most_tokens_have_a_text(smollm2: ModelTokenizer) -> None:
    """Of a real vocabulary: all but parts of characters, special ones and ids that are none."""
    texts = smollm2.texts[True]

    assert sum(texts[token_id] != "" for token_id in range(smollm2.largest_id + 1)) > 0.97 * smollm2.largest_id
    for token_id in smollm2.special_token_ids:
        assert texts[token_id] == ""
    (special, *_) = smollm2.special_token_ids
    assert smollm2.texts[False][special] != ""


def test_nothing_is_kept_of_ids_that_are_none(smollm2: ModelTokenizer) -> None:
    """A worker may send very many."""
    kept = len(smollm2.texts[True]), len(smollm2._starts)

    assert {smollm2.texts[True][token_id] for token_id in (smollm2.largest_id + 1, 2**31, 2**64, -1)} == {""}
    assert (len(smollm2.texts[True]), len(smollm2._starts)) == kept


def test_parts_of_characters_have_no_text() -> None:
    """Their text depends on what comes before and after them."""
    for tokenizer, text in ((BYTE_LEVEL, "🙂"), (STRIPS, "🙂")):
        parts = tokenizer.encode(text, add_special_tokens=False)[-4:]
        assert len(parts) == 4
        assert {tokenizer.texts[True][part] for part in parts} == {""}
