"""Texts are cut into words only by tokenizers, and only at places, that leave each word its ids."""

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel, Digits, Metaspace, PreTokenizer, Sequence, Split

from tests.coordinator.text.tiny import bytes_backend
from tokenwire.coordinator.text.word_rules import split_of

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
DEEPSEEK = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
    rf"|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)
CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    rf"{_CONTRACTIONS}?|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
BYTES = ByteLevel(add_prefix_space=False, use_regex=False)


def isolated(expression: str) -> PreTokenizer:
    """Return a pre-tokenizer that splits off what an expression matches."""
    return Split(Regex(expression), "isolated")


GPT2 = ByteLevel(add_prefix_space=False)


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        GPT2,
        Sequence([Digits(individual_digits=True), GPT2]),
        Sequence([isolated(LLAMA), BYTES]),
        Sequence([isolated(LLAMA.replace(r"\r", "\r").replace(r"\n", "\n")), BYTES]),
        Sequence([isolated(CASED), BYTES]),
        Sequence([isolated(r"\p{N}{1,3}"), isolated("[一-龥぀-ゟ゠-ヿ]+"), isolated(DEEPSEEK), BYTES]),
    ],
)
def test_byte_level_tokenizers_have_words(pre_tokenizer: PreTokenizer) -> None:
    """With the expressions of GPT-2, SmolLM, Llama, Qwen, GPT-OSS, Mistral and DeepSeek."""
    split = split_of(bytes_backend(pre_tokenizer, AddedToken("<end>"), normalizer=normalizers.NFC()))

    assert split is not None
    assert split("The cat, and 12 3.\n") == ["The", " cat,", " and", " 12", " 3.\n"]


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        None,
        BYTES,
        Metaspace(),
        ByteLevel(add_prefix_space=True),
        Sequence([isolated(r"\p{L}+ \p{L}+|\s+(?!\S)|\s+"), BYTES]),  # a match over a space
        Sequence([isolated(r"[\p{L} ]+|\s+(?!\S)|\s+"), BYTES]),
        Sequence([isolated(r"[^\p{L}]+|\s+(?!\S)|\s+"), BYTES]),
        Sequence([isolated(r"(?<=\S)\p{L}+|\s+(?!\S)|\s+"), BYTES]),
        Sequence([isolated(r"\p{L}+|\s+"), BYTES]),  # whitespace keeps its last space
        Sequence([isolated(r"\p{L}+"), BYTES]),  # nothing matches a space
        Sequence([isolated(r"\p{L}+"), GPT2]),  # letters are split off before it
        Sequence([isolated("[-一]+"), GPT2]),
        Sequence([isolated("[é-ÿ--龥]+"), GPT2]),  # a range from the hyphen on
        Sequence([isolated('[#][\\n-"]*|' + LLAMA), BYTES]),  # and one with the space in it
        isolated(LLAMA),  # not of bytes
        Sequence([Split(Regex(LLAMA), "removed"), BYTES]),
        Sequence([Split(Regex(LLAMA), "isolated", invert=True), BYTES]),
        Sequence([Split(" ", "isolated"), BYTES]),
    ],
)
def test_other_tokenizers_have_none(pre_tokenizer: PreTokenizer | None) -> None:
    """Whose words may depend on each other, or for which that is not known."""
    assert split_of(bytes_backend(pre_tokenizer)) is None


@pytest.mark.parametrize(
    "token",
    [
        AddedToken("a b"),
        AddedToken("<a>", lstrip=True),
        AddedToken("<a>", rstrip=True),
        AddedToken("<a>", single_word=True),
    ],
)
def test_added_tokens_that_touch_spaces_prevent_words(token: AddedToken) -> None:
    """They may take in the space at which a text would be cut."""
    assert split_of(bytes_backend(GPT2, token)) is None


@pytest.mark.parametrize(
    ("token", "text", "words"),
    [
        ("été", "un  e\u0301te\u0301", ["un  e\u0301te\u0301"]),
        ("≠", "a  =\u0338 b", ["a  =\u0338", " b"]),
        ("\u212axyz", "a  Kxyz b", ["a  Kxyz", " b"]),
    ],
)
def test_added_tokens_may_begin_with_what_a_normalizer_makes(token: str, text: str, words: list[str]) -> None:
    """A letter and the mark behind it are one character to NFC."""
    split = split_of(bytes_backend(GPT2, AddedToken(token, normalized=True), normalizer=normalizers.NFC()))

    assert split is not None
    assert split(text) == words


def test_where_everything_may_begin_an_added_token_whitespace_stays_together() -> None:
    """No character is left before which it could be cut."""
    split = split_of(bytes_backend(GPT2, *(AddedToken(f"{chr(code)}qq") for code in range(33, 127))))

    assert split is not None
    assert split("x  aqq b") == ["x  aqq", " b"]


def test_normalizers_that_change_spaces_prevent_words() -> None:
    """NFC does not, and others may."""
    assert split_of(bytes_backend(GPT2, normalizer=normalizers.Sequence([normalizers.NFC()]))) is not None
    assert split_of(bytes_backend(GPT2, normalizer=normalizers.Replace(" ", "▁"))) is None
    assert (
        split_of(bytes_backend(GPT2, normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Strip()]))) is None
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a  b", ["a ", " b"]),
        ("if a:\n    return", ["if", " a:\n   ", " return"]),
        ("a  1 2", ["a  1", " 2"]),  # digits may be split off first: "a" and two spaces
        ("a  <end> <end>", ["a  <end>", " <end>"]),  # as is an added token
        ("a  東", ["a  東"]),
        ("a\t b\n c", ["a\t", " b\n", " c"]),
        ("  ", ["  "]),
        ("", []),
    ],
)
def test_texts_are_cut_before_single_spaces(text: str, words: list[str]) -> None:
    """More spaces stay with what is before them, unless an ASCII letter or punctuation follows."""
    split = split_of(bytes_backend(GPT2, AddedToken("<end>")))

    assert split is not None
    assert split(text) == words


def test_berts_words_are_what_spaces_begin() -> None:
    """Unless an added token may match otherwise."""
    made = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), BertPreTokenizer()
    split = split_of(made)
    assert split is not None
    assert split("a  b\n") == ["a", " ", " b\n"]
    made.add_tokens([AddedToken("é")])
    assert split_of(made) is None
