"""Incremental detokenization gives the same text as decoding everything at once, for any steps.

One file, since all tests are of streams that the same helpers feed.
"""

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.coordinator.text import reference, tiny
from tokenwire.coordinator.text.detokenizer import (
    NullTextStream,
    StoppingTextStream,
    TextRules,
    TextStart,
    TextStream,
    TextStreams,
    start_after,
)
from tokenwire.coordinator.text.stops import compile_stops
from tokenwire.coordinator.text.tokenizer import ModelTokenizer

BYTES = tiny.byte_level()
FALLBACK = tiny.byte_fallback(strip=False)
STRIPPING = tiny.byte_fallback(strip=True)
TINY = {"bytes": BYTES, "fallback": FALLBACK, "stripping": STRIPPING}

TEXTS = st.text(alphabet="one tw,.é你🙂\n", max_size=20)
STOPS = st.lists(st.text(alphabet="one é你🙂", min_size=1, max_size=4), max_size=3).map(tuple)


class CountingTokenizer(ModelTokenizer):
    """Counts what it decodes."""

    decoded = 0

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Decode ids."""
        self.decoded += 1
        return super().decode(token_ids, skip_special_tokens)


def cut(ids: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """Cut ids into steps of the given sizes, cyclically."""
    steps, rest, turn = [], list(ids), 0
    while rest:
        size = sizes[turn % len(sizes)]
        steps.append(rest[:size])
        rest, turn = rest[size:], turn + 1
    return steps


def stream_after(tokenizer: ModelTokenizer, prompt: Sequence[int], skip: bool = True) -> TextStream:
    """Return the stream after a prompt."""
    return TextStream(tokenizer, start_after(tokenizer, prompt, skip), skip_special_tokens=skip)


def fed(
    stream: TextStream | NullTextStream, steps: Sequence[list[int]], eos: bool = False
) -> tuple[list[str], int, str | None]:
    """Feed steps; return the deltas, the tokens kept, and the match."""
    deltas, kept = [], 0
    for index, step in enumerate(steps):
        last = index == len(steps) - 1
        delta, count, matched = stream.step(step, eos and last, last)
        deltas.append(delta)
        kept += count
        if matched is not None:
            return deltas, kept, matched
    return deltas, kept, None


def test_text_that_is_not_returned_is_not_decoded(smollm2: ModelTokenizer) -> None:
    """All tokens count and have no text; with a stop string they are decoded nevertheless."""
    ids = smollm2.encode("one two", False)

    assert TextStreams(smollm2, TextRules(detokenize=False)).stream([5]).step(ids, False, False) == ("", len(ids), None)
    stopping = TextStreams(smollm2, TextRules(("two",), detokenize=False)).stream([5])
    assert stopping.step(ids, False, False)[2] == "two"


class TestGoldenVectors:
    """Results of vLLM 0.32 for SmolLM2; only our deltas may be earlier."""

    def run(
        self, tokenizer: ModelTokenizer, text: str, size: int = 1, eos: bool = False, min_tokens: int = 0, **rules: Any
    ) -> tuple[list[str], int, str | None]:
        """Feed the ids of a text in steps of this size."""
        ids = tokenizer.encode(text, False) + ([2] if eos else [])
        prompt = tokenizer.encode("Q:", False)
        stream = TextStreams(tokenizer, TextRules(**rules), min_tokens).stream(prompt)
        return fed(stream, cut(ids, [size]), eos)

    def test_a_stop_string_is_cut_off(self, smollm2: ModelTokenizer) -> None:
        """The stop string is removed, and so are tokens after the one that completed it."""
        result = self.run(smollm2, " one two three four", stop=("two th",))
        assert result == ([" one", " ", ""], 3, "two th")

    def test_an_included_stop_string_stays(self, smollm2: ModelTokenizer) -> None:
        """With include_stop_str_in_output the text ends with the stop string, even inside a token."""
        result = self.run(smollm2, " one two three four", stop=("two th",), include_stop_str_in_output=True)
        assert result == ([" one", " two", " th"], 3, "two th")

    def test_many_tokens_a_step_give_the_same_end(self, smollm2: ModelTokenizer) -> None:
        """Tokens after the completing one are cut off within the step."""
        result = self.run(smollm2, " one two three four", size=4, stop=("two th",))
        assert result == ([" one "], 3, "two th")

    def test_min_tokens_ignores_early_matches(self, smollm2: ModelTokenizer) -> None:
        """A stop string in the first min_tokens tokens is text."""
        result = self.run(smollm2, " one two three four", stop=("two th", "one"), min_tokens=2)
        assert ("".join(result[0]), *result[1:]) == (" one ", 3, "two th")

    def test_eos_is_kept_but_not_text(self, smollm2: ModelTokenizer) -> None:
        """The token that ended the sequence counts, but has no text."""
        result = self.run(smollm2, " one two", eos=True, stop=("zzzz",))
        assert result == ([" one", " two", ""], 3, None)

    def test_characters_are_complete(self, smollm2: ModelTokenizer) -> None:
        """Tokens of a multi-token character have no text until it is complete."""
        result = self.run(smollm2, " 你好🙂 ok")
        assert result == ([" ", "", "你", "", "好", "", "🙂", " ok"], 8, None)


def test_without_stop_strings_no_text_is_kept() -> None:
    """The stream of a usual request has no field in which text could accumulate."""
    stream = TextStream(BYTES)
    assert type(stream) is TextStream
    assert not hasattr(stream, "__dict__")
    assert isinstance(TextStream(BYTES, stops=compile_stops(("x",))), StoppingTextStream)


def test_eos_is_text_if_the_stop_is_included() -> None:
    """include_stop_str_in_output applies to the token that ended the sequence as well."""
    ids = [*BYTES.encode("a", False), tiny.token_id(BYTES, "<end>")]
    for stops in (None, compile_stops(("zzz",))):
        for steps in ([ids], [[each] for each in ids]):
            hidden = TextStream(BYTES, stops=stops, skip_special_tokens=False)
            shown = TextStream(BYTES, stops=stops, skip_special_tokens=False, include_stop_str_in_output=True)
            texts = ["".join(fed(stream, steps, eos=True)[0]) for stream in (hidden, shown)]
            assert texts == ["a", "a<end>"]


def test_a_final_step_without_tokens_flushes() -> None:
    """A sequence that ends without a last token emits the held text."""
    stream = TextStream(BYTES, stops=compile_stops(("###",)))
    assert stream.step(BYTES.encode("a##", False), False, False) == ("a", 3, None)
    assert stream.step([], False, True) == ("##", 0, None)


def test_a_match_before_eos_cuts_eos_off() -> None:
    """A stop string that completes in the step with EOS takes precedence, and EOS does not count."""
    ids = [*BYTES.encode("a", False), tiny.token_id(BYTES, "<end>")]
    assert TextStream(BYTES, stops=compile_stops(("a",))).step(ids, True, True) == ("", 1, "a")


def test_invalid_ids_have_no_text(caplog: pytest.LogCaptureFixture) -> None:
    """An impossible id is logged and has no text; an unknown one has no text."""
    with caplog.at_level(logging.WARNING):
        assert fed(TextStream(BYTES), [[-1], [2**40], [9999], BYTES.encode("ok", False)])[0] == ["", "", "", "ok"]
    assert "-1" in caplog.text


@pytest.mark.parametrize("size", [1, 20])
def test_decoding_continues_after_an_invalid_prefix(size: int) -> None:
    """If a byte invalidates the bytes before it, the decoder restarts and loses nothing after them."""
    broken = [tiny.token_id(FALLBACK, f"<0x{byte:02X}>") for byte in "é".encode() + b"\xff"]
    ids = [*broken, *FALLBACK.encode("one", False)]
    deltas, kept, _ = fed(stream_after(FALLBACK, FALLBACK.encode("two", False)), cut(ids, [size]))
    assert ("".join(deltas), kept) == ("éone", len(ids))


def test_added_tokens_follow_each_other_without_blanks() -> None:
    """Without spaces_between_special_tokens, an added token after another one has only its own text."""
    tokenizer = tiny.word_piece()
    tokenizer.backend.add_tokens(["<tool>"])
    tool, one = tiny.token_id(tokenizer, "<tool>"), tiny.token_id(tokenizer, "one")
    tokenizer.added_token_ids = {tool: "<tool>"}
    ids = [one, tool, tool, one]
    rules = TextRules(skip_special_tokens=False, spaces_between_special_tokens=False)
    assert "".join(fed(TextStreams(tokenizer, rules).stream([one]), cut(ids, [1]))[0]) == " one <tool><tool> one"
    assert "".join(fed(TextStreams(tokenizer, TextRules()).stream([one]), cut(ids, [1]))[0]) == " one <tool> <tool> one"


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ({}, " one <tool> <tool> one"),
        ({"skip_special_tokens": False}, " one <tool> <tool> <end> one"),
        ({"skip_special_tokens": False, "spaces_between_special_tokens": False}, " one <tool><tool><end> one"),
    ],
)
def test_a_stop_string_that_does_not_occur_changes_nothing(rules: dict[str, Any], text: str) -> None:
    """Special tokens are skipped, joined or shown as without one."""
    tokenizer = tiny.word_piece()
    tokenizer.backend.add_tokens(["<tool>"])
    tokenizer.backend.add_special_tokens(["<end>"])
    tool, end, one = (tiny.token_id(tokenizer, token) for token in ("<tool>", "<end>", "one"))
    tokenizer.added_token_ids = {tool: "<tool>", end: "<end>"}

    for stops in ((), ("zzz",)):
        streams = [
            TextStreams(tokenizer, TextRules(stops, **rules)).stream([one]),
            TextStream(tokenizer, TextStart([one]), stops=compile_stops(stops) if stops else None, **rules),
        ]
        for stream in streams:
            assert "".join(fed(stream, cut([one, tool, tool, end, one], [1]))[0]) == text


def test_skipped_tokens_stay_skipped_whatever_separates_others() -> None:
    """spaces_between_special_tokens changes nothing where special tokens are no text."""
    (end,) = BYTES.encode("<end>", False)
    ids = [*BYTES.encode("one", False), end, end, *BYTES.encode("two", False)]
    for joined in (False, True):
        rules = TextRules(skip_special_tokens=True, spaces_between_special_tokens=not joined)
        assert "".join(fed(TextStreams(BYTES, rules).stream([]), cut(ids, [1]))[0]) == "onetwo"


@pytest.mark.parametrize("kind", TINY)
@pytest.mark.parametrize("cut_at", [1, 2, 3])
def test_a_prompt_that_ends_inside_a_character_is_not_repeated(kind: str, cut_at: int) -> None:
    """The first text completes the prompt's last character, and repeats nothing of the prompt."""
    tokenizer = TINY[kind]
    ids = tokenizer.encode("one, two 🙂, one", False)
    start = next(i for i in range(len(ids)) if tokenizer.decode(ids[: i + 1]).endswith("\ufffd"))
    stream = stream_after(tokenizer, ids[: start + cut_at])
    assert "".join(fed(stream, cut(ids[start + cut_at :], [1]))[0]) == "🙂, one"


def test_the_whole_part_of_a_cut_token_is_not_repeated(smollm2: ModelTokenizer) -> None:
    """Of a token with a blank and half a character, the first text has only the character."""
    ids = smollm2.encode("one 🦄 two", False)
    assert smollm2.decode(ids[:2]) == "one \ufffd"
    assert fed(stream_after(smollm2, ids[:2]), cut(ids[2:], [1]))[0] == ["", "🦄", " two"]


def test_a_prompt_that_stays_broken_is_not_repeated() -> None:
    """If the character is never completed, the replacement character belongs to the prompt."""
    prompt = BYTES.encode("one 🙂", False)[:-1]
    assert fed(stream_after(BYTES, prompt), [BYTES.encode("one", False)])[0] == ["one"]
    noise = BYTES.encode("🙂", False)[1:2] * 200
    assert fed(stream_after(BYTES, noise), [BYTES.encode("one", False)])[0] == ["one"]


@settings(max_examples=200)
@given(
    kind=st.sampled_from(sorted(TINY)),
    prompt=TEXTS,
    text=TEXTS,
    stops=STOPS,
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    min_tokens=st.integers(0, 12),
    include=st.booleans(),
)
def test_any_steps_equal_decoding_at_once(
    kind: str, prompt: str, text: str, stops: tuple[str, ...], sizes: list[int], min_tokens: int, include: bool
) -> None:
    """Text, kept tokens and match equal the reference, for all kinds of tokenizers and any steps."""
    tokenizer = TINY[kind]
    # A visible beginning, because some decoders treat the first blank specially.
    prompt_ids, ids = tokenizer.encode(f"o{prompt}", False), tokenizer.encode(text, False)
    texts = reference.texts_of_prefixes(tokenizer, prompt_ids, ids)
    expected = reference.reference_result(texts, stops, min_tokens, include)
    stream = TextStreams(tokenizer, TextRules(stops, include), min_tokens).stream(prompt_ids)
    deltas, kept, matched = fed(stream, cut(ids, sizes))
    assert ("".join(deltas), kept, matched) == (expected.text, expected.kept, expected.matched)
    assert not any("\ufffd" in delta for delta in deltas)


@settings(max_examples=200)
@given(prompt=st.binary(max_size=80), generated=st.binary(max_size=20), size=st.integers(1, 4))
def test_any_bytes_equal_decoding_at_once(prompt: bytes, generated: bytes, size: int) -> None:
    """Even for random bytes, the text is the whole text without the prompt's."""
    prompt_ids, ids = byte_ids(prompt + b"x"), byte_ids(generated)
    expected = reference.texts_of_prefixes(BYTES, prompt_ids, ids)[-1]
    assert "".join(fed(stream_after(BYTES, prompt_ids), cut(ids, [size]))[0]) == expected


def byte_ids(raw: bytes) -> list[int]:
    """Return the ids of arbitrary bytes."""
    spelled = {char: index for index, char in enumerate(sorted(BYTES.backend.get_vocab(False)))}
    return [spelled[BYTE_CHARS[byte]] for byte in raw]


def _byte_chars() -> dict[int, str]:
    # GPT-2's table: printable bytes map to themselves, the others to code points from 256 on.
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


BYTE_CHARS = _byte_chars()


@settings(max_examples=200)
@given(
    kind=st.sampled_from(sorted(TINY)),
    prompt=st.lists(st.integers(0, 270), min_size=30, max_size=200),
    generated=st.lists(st.integers(0, 270), max_size=12),
    skip=st.booleans(),
)
def test_a_suffix_of_the_prompt_primes_like_all_of_it(
    kind: str, prompt: list[int], generated: list[int], skip: bool
) -> None:
    """A stream primed with a few tokens decodes exactly like one primed with the whole prompt."""
    tokenizer = TINY[kind]
    if tokenizer.decode(prompt, skip).endswith("\ufffd"):
        prompt = [*prompt, *tokenizer.encode("one", False)]
    stream = stream_after(tokenizer, prompt, skip)
    assert fed(stream, cut(generated, [1]))[0] == reference.stream_deltas(tokenizer, prompt, generated, skip)


def test_a_run_of_bytes_is_not_cut() -> None:
    """Bytes decode together, so the suffix does not begin between them."""
    byte_run = [tiny.token_id(FALLBACK, f"<0x{byte:02X}>") for byte in "éééé".encode() + b"a\xc3"]
    prompt = [*FALLBACK.encode("one" * 5, False), *byte_run[:-1]]
    ids = [byte_run[-1], *FALLBACK.encode("o", False)]
    expected = reference.stream_deltas(FALLBACK, prompt, ids, True)
    assert fed(stream_after(FALLBACK, prompt), cut(ids, [1]))[0] == expected == ["", "o"]


def test_a_prompt_without_text_at_its_end_primes_with_little() -> None:
    """Each choice keeps and decodes these ids. All of a prompt may be special tokens, or bytes of no character."""
    (end,) = STRIPPING.encode("<end>", False)
    one = [tiny.token_id(STRIPPING, "▁one")]
    byte = tiny.token_id(STRIPPING, "<0x80>")
    special, broken = [*one, *[end] * 5000], [*one, *[byte] * 5000]

    for prompt in (special, broken):
        assert len(start_after(STRIPPING, prompt).token_ids) <= 256
    assert fed(stream_after(STRIPPING, special), [one])[0] == [" one"]


def test_choices_share_where_they_start() -> None:
    """A prompt is searched for it once, however many choices it has."""
    tokenizer = CountingTokenizer.from_files({"tokenizer.json": FALLBACK.backend.to_str().encode()})
    streams, prompt = TextStreams(tokenizer, TextRules()), [*tokenizer.encode("one", False) * 50, 21]
    streams.stream(prompt)
    decoded = tokenizer.decoded

    for _ in range(10):
        streams.stream(prompt)
    assert tokenizer.decoded == decoded > 0
    streams.stream(prompt[:-1])
    assert tokenizer.decoded > decoded


@pytest.mark.parametrize("kind", TINY)
@pytest.mark.parametrize("what", ["<end>", "broken"])
def test_a_long_run_without_text_is_not_decoded_again_and_again(kind: str, what: str) -> None:
    """A stream begins anew within it. The text is the same, but that of each run a broken character may be missing."""
    tokenizer = TINY[kind]
    broken = byte_ids(b"\x80")[0] if kind == "bytes" else tiny.token_id(tokenizer, "<0x80>")
    run = [broken] if what == "broken" else tokenizer.encode(what, False)
    prompt, ids = tokenizer.encode("one", False), [*run * 1000, *tokenizer.encode(" two 🙂", False)]
    expected = reference.texts_of_prefixes(tokenizer, prompt, ids)[-1]

    text = "".join(fed(stream_after(tokenizer, prompt), cut(ids, [1]))[0])

    assert text.lstrip("\ufffd") == expected.lstrip("\ufffd")
    assert len(expected) - 1000 // 16 - 1 <= len(text) <= len(expected)


def test_characters_that_no_token_ends_are_text() -> None:
    """Tokens that begin and end within characters never end with one; after some, the whole ones are returned."""
    backend = tiny.byte_fallback(strip=False).backend
    characters = "你" * 200
    tokens = characters.encode()
    ids = [tiny.token_id(FALLBACK, f"<0x{byte:02X}>") for byte in tokens]
    steps = [ids[:2], *cut(ids[2:], [3])]

    deltas = fed(TextStream(ModelTokenizer(backend, {})), steps)[0]

    assert "".join(deltas) == characters


def test_position_dependent_words_need_the_whole_prompt() -> None:
    """Only decoders known to be additive are primed with a suffix of the prompt."""
    tokenizer = tiny.word_piece()
    assert [tokenizer.decodes_additively for tokenizer in TINY.values()] == [True, True, True]
    assert not tokenizer.decodes_additively
    ids = tokenizer.encode("one", False) * 50
    assert fed(stream_after(tokenizer, ids), [ids[:2]])[0] == [" one one"]


@pytest.mark.npm
def test_real_tokenizers_decode_step_by_step(npm_tokenizer: ModelTokenizer) -> None:
    """For real models, deltas of one token per step join to the text, after short and long prompts."""
    text = "Hello, wörld! 你好 🙂👩‍👩‍👧 naïve\n\tcode = {'a': 1}  \u202bשלום\u202c ½ <|im_end|> end"
    ids = npm_tokenizer.encode(text, False)
    assert npm_tokenizer.decodes_additively
    for prompt in ("Q:", "Ein längerer Anfang, 你好, mit mehr als acht Wörtern darin. " * 20):
        prompt_ids = npm_tokenizer.encode(prompt, False)
        expected = reference.texts_of_prefixes(npm_tokenizer, prompt_ids, ids, False)[-1]
        stream = stream_after(npm_tokenizer, prompt_ids, False)
        assert "".join(fed(stream, cut(ids, [1]))[0]) == expected
