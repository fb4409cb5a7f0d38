"""The model of a plain vLLM server: from its list of models and the configuration in the model's directory."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenwire.errors import InvalidRequest, Unavailable
from tokenwire.v1 import inference_pb2 as pb

_DEFAULTS = (
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
)
"""The fields that vLLM takes from a generation config."""


class ModelDirectoryConfig:
    """The configuration files of a model's directory; missing ones are empty."""

    def __init__(self, folder: Path) -> None:
        """Load the files. Raises InvalidRequest."""
        config = read_config(folder / "config.json")
        self._generation = read_config(folder / "generation_config.json")
        self._text: Mapping[str, Any] = config.get("text_config") or config
        self.model_type = str(config.get("model_type") or "")
        self.architecture = str((config.get("architectures") or [""])[0])
        self._digest = f"directory:{folder}"

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """The ids that end a sequence."""
        ids: set[int] = set()
        for value in (self._generation.get("eos_token_id"), self._text.get("eos_token_id")):
            ids.update(value if isinstance(value, list) else [] if value is None else [value])
        return frozenset(ids)

    def describe(self, listed: Mapping[str, Any], version: str) -> pb.Model:
        """Return the model as a worker would announce it, from the server's /v1/models and /version."""
        # Adapters have a parent; names of the model itself have none.
        cards = [card for card in listed.get("data") or () if not card.get("parent")]
        if not cards or not cards[0].get("max_model_len"):
            raise Unavailable("the server lists no model with a max_model_len")
        return pb.Model(
            names=[str(card["id"]) for card in cards],
            root=str(cards[0].get("root") or cards[0]["id"]),
            max_model_len=int(cards[0]["max_model_len"]),
            max_token_id=max(0, int(self._text.get("vocab_size") or 0) - 1),
            tokenizer_digest=self._digest,
            default_sampling_params_json=json.dumps(self._default_sampling_params()),
            engine=f"vllm {version} (serve)",
            model_type=self.model_type,
            architecture=self.architecture,
        )

    def _default_sampling_params(self) -> dict[str, Any]:
        given = {name: self._generation[name] for name in _DEFAULTS if self._generation.get(name) is not None}
        if self._generation.get("max_new_tokens") is not None:
            given["max_tokens"] = self._generation["max_new_tokens"]
        return given


def read_config(path: Path) -> dict[str, Any]:
    """Return a JSON object of a model's directory; empty if there is no such file. Raises InvalidRequest."""
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"cannot read {path}: {error}") from error
    return value if isinstance(value, dict) else {}
