"""The model of a simulated engine: tokenizer files, printable ids and limits, but no weights."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tokenwire.errors import EngineFailed

_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
_SAMPLING_DEFAULTS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "max_new_tokens": "max_tokens",
}
_DEFAULT_MAX_MODEL_LEN = 32768
_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, slots=True)
class SimulatedModel:
    """A model without weights."""

    root: str
    name: str
    files: dict[str, bytes]
    words: tuple[int, ...]
    """Ids that decode to printable text on their own, in ascending order."""
    word_set: frozenset[int]
    eos_token_id: int | None
    stop_token_ids: frozenset[int]
    """Stop ids of the generation config other than EOS."""
    max_token_id: int
    max_model_len: int
    default_sampling_params: dict[str, Any]

    def tokenizer(self) -> Tokenizer:
        """Build the tokenizer, which may take a second."""
        return _parse_tokenizer(self.files["tokenizer.json"], self.root)

    def configuration(self) -> dict[str, Any]:
        """Return the configuration of an engine of one process that accepts adapters, with vLLM's names."""
        return {
            "model_config": {"model": self.root, "dtype": "float32", "logprobs_mode": "processed_logprobs"},
            "parallel_config": {"world_size": 1, "world_size_across_dp": 1, "data_parallel_size": 1},
            "lora_config": {"max_loras": None},
            "device_config": {"device_type": "simulated"},
            "weight_transfer_config": None,
        }


def load_model(model_dir: Path | None, max_model_len: int | None) -> SimulatedModel:
    """Load a model's tokenizer, or build the built-in one. Raises EngineFailed."""
    if model_dir is None:
        files, config = _builtin_files(), {}
        root = name = "simulated"
    else:
        files, config = _read_files(model_dir), _read_json(model_dir / "config.json")
        root, name = str(model_dir), model_dir.resolve().name
    tokenizer = _parse_tokenizer(files["tokenizer.json"], root)
    generation = json.loads(files.get("generation_config.json", b"{}"))
    eos, stops = _stop_ids(tokenizer, json.loads(files["tokenizer_config.json"]), generation, config)
    words = _words(tokenizer)
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    return SimulatedModel(
        root=root,
        name=name,
        files=files,
        words=words,
        word_set=frozenset(words),
        eos_token_id=eos,
        stop_token_ids=stops,
        max_token_id=max(largest, int(config.get("vocab_size") or 0) - 1),
        max_model_len=max_model_len or int(config.get("max_position_embeddings") or _DEFAULT_MAX_MODEL_LEN),
        default_sampling_params={
            ours: generation[theirs]
            for theirs, ours in _SAMPLING_DEFAULTS.items()
            if generation.get(theirs) is not None
        },
    )


def _read_files(model_dir: Path) -> dict[str, bytes]:
    if not (model_dir / "tokenizer.json").is_file():
        raise EngineFailed(f"{model_dir} has no tokenizer.json; name a directory with a tokenizer, or none at all")
    files = {name: (model_dir / name).read_bytes() for name in _FILES if (model_dir / name).is_file()}
    files.setdefault("tokenizer_config.json", b"{}")
    return files


def _read_json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    return content


def _parse_tokenizer(content: bytes, root: str) -> Tokenizer:
    try:
        return Tokenizer.from_buffer(content)
    except Exception as error:  # tokenizers raises bare Exception
        raise EngineFailed(f"cannot read the tokenizer of {root}: {error}") from error


def _stop_ids(
    tokenizer: Tokenizer, tokenizer_config: dict[str, Any], generation: dict[str, Any], config: dict[str, Any]
) -> tuple[int | None, frozenset[int]]:
    """Return EOS, which is the tokenizer's as in vLLM, and the generation config's other stop ids."""
    listed = generation.get("eos_token_id", config.get("eos_token_id"))
    stops = [] if listed is None else [listed] if isinstance(listed, int) else list(listed)
    token = tokenizer_config.get("eos_token")
    text = token.get("content") if isinstance(token, dict) else token
    eos = tokenizer.token_to_id(text) if text else None
    if eos is None and stops:
        eos = stops[0]
    return eos, frozenset(stops) - {eos}


def _words(tokenizer: Tokenizer) -> tuple[int, ...]:
    added = tokenizer.get_added_tokens_decoder()
    ids = sorted(set(tokenizer.get_vocab(with_added_tokens=False).values()) - set(added))
    texts = tokenizer.decode_batch([[token] for token in ids], skip_special_tokens=False)
    words = [
        token for token, text in zip(ids, texts, strict=True) if text and text.isprintable() and "\ufffd" not in text
    ]
    if not words:
        raise EngineFailed("the tokenizer has no token that decodes to printable text")
    return tuple(words)


def _builtin_files() -> dict[str, bytes]:
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": _CHATML,
        "clean_up_tokenization_spaces": False,
    }
    return {
        "tokenizer.json": _byte_tokenizer().to_str().encode(),
        "tokenizer_config.json": json.dumps(config).encode(),
    }


def _byte_tokenizer() -> Tokenizer:
    """Return a tokenizer of one id per byte, equal to the byte, followed by the ChatML tokens."""
    tokenizer = Tokenizer(models.BPE(vocab={char: byte for byte, char in enumerate(_byte_chars())}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    return tokenizer


def _byte_chars() -> list[str]:
    """Return the byte-level alphabet: printable bytes map to themselves, the others to U+0100 and up, in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(hidden)) for byte in range(0x100)]
