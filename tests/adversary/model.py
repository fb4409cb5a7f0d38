"""A model directory for simulated engines with a vocabulary of a real model's size."""

import itertools
import json
import string
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.adversary.values import CONTEXT, LONG_TOKENS, VOCABULARY

_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<unused>")
"""Tokens that parsers know."""


def write_large_model(folder: Path) -> Path:
    """Write a byte-level BPE of pairs and quadruples of letters; return its directory."""
    added = [*LONG_TOKENS.values(), *_MARKS]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    letters = ["\u0120", *string.ascii_lowercase]
    pairs = list(itertools.product(letters, letters))
    quadruples = itertools.product(map("".join, pairs), map("".join, pairs))
    merges = [
        *pairs,
        *itertools.islice(quadruples, VOCABULARY - len(alphabet) - len(pairs) - len(added) - len(_SPECIAL)),
    ]
    words = [*alphabet, *map("".join, merges)]
    tokenizer = Tokenizer(models.BPE(vocab={word: number for number, word in enumerate(words)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(each, special=False, normalized=False) for each in added])
    tokenizer.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in _SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|im_end|>", "chat_template": _TEMPLATE, "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT}))
    return folder
