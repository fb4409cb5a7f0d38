"""Parses vLLM's engine arguments as vLLM does, raising errors instead of exiting."""

from typing import Any, NoReturn

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser

from tokenwire.errors import EngineFailed
from tokenwire.worker.vllm_engine.extension import WORKER_EXTENSION


def parse_engine_args(model: str, arguments: list[str]) -> Any:
    """Parse the arguments after `--` into vLLM's AsyncEngineArgs. Raises EngineFailed with vLLM's message."""
    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser(prog="tokenwire worker", add_help=False))
    parser.error = _refuse
    try:
        parsed = AsyncEngineArgs.from_cli_args(parser.parse_args(["--model", model, *arguments]))
    except (ValueError, TypeError, SystemExit) as error:
        _refuse(str(error))
    _check(model, parsed)
    # vLLM accepts one extension; the operator's own one takes precedence.
    parsed.worker_extension_cls = parsed.worker_extension_cls or WORKER_EXTENSION
    return parsed


def _check(model: str, parsed: Any) -> None:
    if parsed.model != model:
        _refuse(f"the model was given before `--` as {model}; remove --model {parsed.model}")
    if getattr(parsed, "allowed_local_media_path", None) or getattr(parsed, "allowed_media_domains", None):
        _refuse("workers fetch no media: give coordinators --allowed-media-domains; local files are not served")
    if parsed.skip_tokenizer_init:
        # Without a tokenizer an id outside the vocabulary kills the engine, and EOS, bad words and grammars fail.
        _refuse("--skip-tokenizer-init is not supported: the worker validates requests with the tokenizer")


def _refuse(message: str) -> NoReturn:
    raise EngineFailed(f"Invalid vLLM engine arguments: {message}")
