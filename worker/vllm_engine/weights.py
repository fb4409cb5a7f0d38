"""The digest of the weights that vLLM loaded."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache

from tokenwire.worker.engine.weights_digest import weights_digest


def weights_digest_of(config: Any) -> str:
    """Return the digest of the checkpoint of a vLLM configuration, with what vLLM is told to change in it.

    Where its files are on no disk, as with weights that are streamed from an object store, it is one of their name and
    revision. Takes seconds at most; call it in a thread.
    """
    model, load = config.model_config, config.load_config
    checkpoint = _checkpoint(model, load.download_dir)
    is_random = load.load_format == "dummy"
    weights = "" if checkpoint is None or is_random else weights_digest(checkpoint)
    source = weights or [str(model.model_weights or model.model), model.revision, model.seed if is_random else None]
    overrides = model.hf_overrides if isinstance(model.hf_overrides, dict) else {}
    if weights and not overrides:
        return weights
    return hashlib.sha256(json.dumps([source, overrides], sort_keys=True, default=str).encode()).hexdigest()


def _checkpoint(model: Any, download_dir: str | None) -> Path | None:
    """Return the directory or file of the weights, which vLLM has already loaded; None if it is not on this machine."""
    if os.path.exists(model.model):
        return Path(model.model)
    try:
        cached = try_to_load_from_cache(model.model, "config.json", download_dir, model.revision)
    except ValueError:  # not the name of a repository
        return None
    return Path(cached).parent if isinstance(cached, str) else None
