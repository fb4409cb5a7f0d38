"""Makes the tiny model: random layers, and an output head that is solved for its fixed replies."""

import json
import shutil
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.cache import kept_model
from tests.lazily import Lazily
from tests.tiny_model.replies import REPLIES, LearnedReply
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.coordinator.text.tokenizer import ModelTokenizer
from tokenwire.process.shared_options import default_cache_dir
from tokenwire.worker.vllm_engine.embedded_model import prepare_embedded_model

np = Lazily("numpy")
llama = Lazily("tests.tiny_model.llama")
safetensors = Lazily("safetensors.numpy")

TINY_MODEL_NAME = "tiny-model"
_HIDDEN = 128
_SHAPE = {
    "hidden_size": _HIDDEN,
    "intermediate_size": 2 * _HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "tie_word_embeddings": False,
    "dtype": "float32",
}
_RIDGE = 1e-3


@cache
def tiny_model() -> Path:
    """Return the model's directory, with the embedded model's tokenizer; made in a second where it is missing."""
    return kept_model(Path(__file__).parent, TINY_MODEL_NAME, _make)


def _make(parent: Path) -> Path:
    embedded, folder = prepare_embedded_model(default_cache_dir(), lambda _: None), parent / TINY_MODEL_NAME
    shutil.copytree(embedded, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    config = json.loads((embedded / "config.json").read_text()) | _SHAPE
    (folder / "config.json").write_text(json.dumps(config))
    model = llama.Llama.random(config, seed=7)
    _teach(model, _texts(embedded))
    safetensors.save_file(model.weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _texts(embedded: Path) -> Iterator[tuple[list[int], list[int], float]]:
    """Yield each reply's prompt and text as ids, and its logit."""
    tokenizer = ModelTokenizer.from_directory(embedded)
    template = ChatTemplate((embedded / "chat_template.jinja").read_text(), {}, "string")
    for reply in REPLIES:
        yield tokenizer.encode(_prompt(template, reply)), tokenizer.encode(reply.text), reply.logit


def _prompt(template: ChatTemplate, reply: LearnedReply) -> str:
    if isinstance(reply.prompt, str):
        return reply.prompt
    begun = reply.prompt[-1]["role"] == "assistant"
    values = {
        "tools": None,
        "documents": None,
        "add_generation_prompt": not begun,
        "continue_final_message": begun,
    }
    return template.render_values(reply.prompt, values)


def _teach(model: Any, texts: Iterable[tuple[list[int], list[int], float]]) -> None:
    """Add as little as possible to the head's rows of the replies' tokens (ridge regression)."""
    wanted: dict[tuple[int, ...], dict[int, float]] = {}  # logits after each beginning of a text
    features = {}
    for prompt, expected, logit in texts:
        ends = model.features(prompt + expected[:-1])[len(prompt) - 1 :]
        for count, (token, end) in enumerate(zip(expected, ends, strict=True)):
            beginning = (*prompt, *expected[:count])
            features[beginning] = end
            wanted.setdefault(beginning, {}).setdefault(token, logit)
    head, inputs = model.weights["lm_head.weight"], np.stack(list(features.values()))
    rows = sorted({token for logits in wanted.values() for token in logits})
    change = np.zeros((len(inputs), len(rows)), np.float32)
    for position, logits in enumerate(wanted.values()):
        for token, logit in logits.items():
            change[position, rows.index(token)] = logit - head[token] @ inputs[position]
    kernel = inputs @ inputs.T + _RIDGE * _HIDDEN * np.eye(len(inputs))
    head[rows] += (np.linalg.solve(kernel, change).T @ inputs).astype(np.float32)
    likeliest = (inputs @ head.T).argmax(-1).tolist()
    assert likeliest == [max(logits, key=logits.__getitem__) for logits in wanted.values()], "not memorized"
