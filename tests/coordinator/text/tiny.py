"""Tokenizers small enough to build in a test, one for each kind of decoder."""

import json
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from tokenwire.coordinator.text.tokenizer import ModelTokenizer


def byte_level() -> ModelTokenizer:
    """One token per byte, so that every non-ASCII character is split; two added tokens, one of them special."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({char: index for index, char in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens([AddedToken("<tool>", special=False), AddedToken("<end>", special=True)])
    return from_backend(backend)


def bytes_backend(
    pre_tokenizer: pre_tokenizers.PreTokenizer | None,
    *added: AddedToken,
    normalizer: normalizers.Normalizer | None = None,
    without: str = "",
) -> Tokenizer:
    """One token per byte, but for some that the vocabulary lacks, with the parts that are given."""
    alphabet = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - set(without))
    backend = Tokenizer(models.BPE({char: index for index, char in enumerate(alphabet)}, []))
    if pre_tokenizer is not None:
        backend.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.add_tokens(list(added))
    return backend


def byte_fallback(strip: bool) -> ModelTokenizer:
    """Like SentencePiece models: words with a character for the blank, and single bytes for everything else."""
    words = ["<unk>", "▁", "▁one", "▁two", "▁three", "o", "n", "e", "t", "w", "你", ",", "."]
    words += [f"<0x{byte:02X}>" for byte in range(256)]
    backend = Tokenizer(
        models.BPE({word: i for i, word in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True)
    )
    chain = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*chain, decoders.Strip(" ", 1, 0)] if strip else chain)
    backend.add_tokens([AddedToken("<tool>", special=False), AddedToken("<end>", special=True)])
    return from_backend(backend)


def word_piece() -> ModelTokenizer:
    """A tokenizer whose decoder joins words with blanks, so that a token's text depends on its position."""
    words = ["[UNK]", "one", "two", "##s", "##ly", ".", "<end>"]
    backend = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    return from_backend(backend)


def token_id(tokenizer: ModelTokenizer, token: str) -> int:
    """Return the id of a token of the vocabulary."""
    found = tokenizer.backend.token_to_id(token)
    assert found is not None
    return found


def from_backend(backend: Tokenizer) -> ModelTokenizer:
    """Build a ModelTokenizer from the backend's serialized file."""
    return ModelTokenizer.from_files({"tokenizer.json": backend.to_str().encode()})


BACKEND = byte_level().backend.to_str()


def byte_level_with(config: dict[str, Any] | None = None, **files: str) -> ModelTokenizer:
    """Build the small byte-level tokenizer with a config and more files, with dots as two underscores."""
    contents = {name.replace("__", "."): text.encode() for name, text in files.items()}
    contents.setdefault("tokenizer.json", BACKEND.encode())
    if config is not None:
        contents["tokenizer_config.json"] = json.dumps(config).encode()
    return ModelTokenizer.from_files(contents)
