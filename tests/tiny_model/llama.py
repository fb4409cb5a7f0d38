"""The Llama architecture in numpy, as far as the tiny model needs it: importing torch takes longer than all else."""

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float32]]


class Llama:
    """Weights, by the names of checkpoints, and the features that the output head reads."""

    def __init__(self, config: dict[str, Any], weights: dict[str, Array]) -> None:
        self.weights = weights
        self._config = config

    @classmethod
    def random(cls, config: dict[str, Any], seed: int) -> "Llama":
        """Make a model whose logits have a standard deviation of one."""
        draw = np.random.default_rng(seed)
        hidden, inner, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
        heads, shared = (config[f"num_{kind}_heads"] * config["head_dim"] for kind in ("attention", "key_value"))
        layer = {
            "self_attn.q_proj": (heads, hidden),
            "self_attn.k_proj": (shared, hidden),
            "self_attn.v_proj": (shared, hidden),
            "self_attn.o_proj": (hidden, heads),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        norms = ["model.norm"]
        shapes = {"model.embed_tokens": (vocabulary, hidden), "lm_head": (vocabulary, hidden)}
        for number in range(config["num_hidden_layers"]):
            prefix = f"model.layers.{number}"
            shapes |= {f"{prefix}.{name}": shape for name, shape in layer.items()}
            norms += [f"{prefix}.input_layernorm", f"{prefix}.post_attention_layernorm"]
        weights = {
            f"{name}.weight": draw.standard_normal(shape, np.float32) / np.float32(shape[1] ** 0.5)
            for name, shape in shapes.items()
        }
        weights["model.embed_tokens.weight"] *= np.float32(hidden**0.5)
        weights |= {f"{name}.weight": draw.uniform(0.8, 1.2, hidden).astype(np.float32) for name in norms}
        return cls(config, weights)

    def features(self, ids: Sequence[int]) -> Array:
        """Return what the head reads after each token."""
        states = self.weights["model.embed_tokens.weight"][list(ids)]
        for number in range(self._config["num_hidden_layers"]):
            layer = f"model.layers.{number}"
            states = states + self._attention(f"{layer}.self_attn", self._norm(f"{layer}.input_layernorm", states))
            states = states + self._mlp(f"{layer}.mlp", self._norm(f"{layer}.post_attention_layernorm", states))
        return self._norm("model.norm", states)

    def _linear(self, name: str, inputs: Array) -> Array:
        return inputs @ self.weights[f"{name}.weight"].T

    def _norm(self, name: str, states: Array) -> Array:
        scale = np.sqrt((states * states).mean(-1, keepdims=True) + self._config["rms_norm_eps"])
        normed: Array = (states / scale * self.weights[f"{name}.weight"]).astype(np.float32)
        return normed

    def _mlp(self, name: str, states: Array) -> Array:
        gate = self._linear(f"{name}.gate_proj", states)
        return self._linear(f"{name}.down_proj", gate / (1 + np.exp(-gate)) * self._linear(f"{name}.up_proj", states))

    def _attention(self, name: str, states: Array) -> Array:
        count, size = len(states), self._config["head_dim"]
        queries, keys, values = (
            self._linear(f"{name}.{part}_proj", states).reshape(count, -1, size) for part in ("q", "k", "v")
        )
        groups = queries.shape[1] // keys.shape[1]
        queries, keys = self._turned(queries), self._turned(keys).repeat(groups, 1)
        scores = np.einsum("ihd,jhd->hij", queries, keys) / size**0.5 + np.triu(np.full((count, count), -np.inf), 1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = np.einsum("hij,jhd->ihd", weights, values.repeat(groups, 1)).reshape(count, -1)
        return self._linear(f"{name}.o_proj", mixed.astype(np.float32))

    def _turned(self, vectors: Array) -> Array:
        """Apply rotary embeddings."""
        size = self._config["head_dim"]
        speeds = self._config["rope_parameters"]["rope_theta"] ** (-np.arange(0, size, 2) / size)
        angles = (np.arange(len(vectors))[:, None] * speeds)[:, None]
        first, second = np.split(vectors, 2, axis=-1)
        cosines, sines = np.cos(angles), np.sin(angles)
        parts = (first * cosines - second * sines, second * cosines + first * sines)
        turned: Array = np.concatenate(parts, -1).astype(np.float32)
        return turned
