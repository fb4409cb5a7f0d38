"""Checks a model's name or path before anything slow is imported."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from tokenwire.errors import NotFound

# NAME or ORG/NAME; for quantized models followed by a variant after a colon, or by a file.
_HUB_ID = re.compile(r"([\w-][\w.-]*(?:/[\w.-]+)?)(?::[\w.-]+)?|([\w-][\w.-]*/[\w.-]+)/[\w./-]+\.gguf")
# The configuration files of transformers, Mistral and llama.cpp.
_DESCRIPTIONS = ("config.json", "params.json", "*.gguf")
# With these, vLLM uses another hub or other credentials.
_OTHER_HUBS = ("VLLM_USE_MODELSCOPE", "VLLM_MODEL_REDIRECT_PATH")
_OTHER_WAYS = ("--hf-token", "--hf-config-path")
_TIMEOUT_S = 10.0


def check_model(model: str, engine_arguments: Sequence[str] = ()) -> None:
    """Reject directories without a model, missing paths, and names that are not on the hub. Raises NotFound.

    What only vLLM can decide is not checked.
    """
    path = Path(model)
    if path.is_dir():
        if not any(found for name in _DESCRIPTIONS for found in path.glob(name)):
            raise NotFound(f"The directory {model} contains no model: it has no config.json.")
    elif not path.exists() and "://" not in model:
        hub_id = _HUB_ID.fullmatch(model)
        if hub_id is None:
            raise NotFound(f"There is no model at {model}. Name a directory with a config.json, or a hub id: ORG/NAME.")
        if not _is_found_elsewhere(engine_arguments):
            _check_hub(hub_id[1] or hub_id[2])


def _is_found_elsewhere(engine_arguments: Sequence[str]) -> bool:
    names = {argument.partition("=")[0].replace("_", "-") for argument in engine_arguments}
    redirected = any(os.environ.get(name, "").strip().lower() not in ("", "0", "false") for name in _OTHER_HUBS)
    return redirected or not names.isdisjoint(_OTHER_WAYS)


def _check_hub(repository: str) -> None:
    from huggingface_hub import constants

    snapshots = Path(constants.HF_HUB_CACHE, f"models--{repository.replace('/', '--')}", "snapshots")
    if snapshots.is_dir() and any(snapshots.iterdir()):
        return
    fault = _missing_at_hub(repository, constants.HF_HUB_OFFLINE, constants.ENDPOINT)
    if fault:
        raise NotFound(
            f"There is no model {repository}: it is neither a directory nor in the hub's cache "
            f"{constants.HF_HUB_CACHE}, and {fault}, or give the path of a directory with a config.json."
        )


def _missing_at_hub(repository: str, offline: bool, endpoint: str) -> str:
    """Query the hub; return why a model cannot be loaded from there and a remedy; empty if it can."""
    if offline:
        return "HF_HUB_OFFLINE disables the hub. Unset it"
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    try:
        HfApi().model_info(repository, timeout=_TIMEOUT_S)
    except RepositoryNotFoundError:
        return f"no such repository at {endpoint}. Check the name (ORG/NAME), set HF_TOKEN if it is private"
    except HFValidationError:
        return "it is not a valid repository name. Check the name (ORG/NAME)"
    except HfHubHTTPError:
        return ""  # the hub has another problem, or responds in its own way
    except Exception as error:  # of any HTTP client that the hub's library uses
        reason = str(error) or type(error).__name__
        return f"the hub {endpoint} cannot be reached ({reason}). Check the network, set HF_ENDPOINT to a mirror"
    return ""
