"""vLLM's own engine arguments, parsed as vLLM parses them, with errors instead of exits."""

from typing import Any, NoReturn

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser

from tokenwire.errors import EngineFailed
from tokenwire.worker.vllm_engine.extension import EXTENSION


def parse_engine_args(model: str, arguments: list[str]) -> Any:
    """Turn what the operator typed after `--` into vLLM's AsyncEngineArgs. Raises EngineFailed with vLLM's message."""
    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser(prog="tokenwire worker", add_help=False))
    parser.error = _refuse
    try:
        parsed = AsyncEngineArgs.from_cli_args(parser.parse_args(["--model", model, *arguments]))
    except (ValueError, TypeError, SystemExit) as error:
        _refuse(str(error))
    _check(model, parsed)
    # Where the operator has no extension of his own, there is room for ours.
    parsed.worker_extension_cls = parsed.worker_extension_cls or EXTENSION
    return parsed


def _check(model: str, parsed: Any) -> None:
    if parsed.model != model:
        _refuse(f"the model is {model}, as given before `--`; --model {parsed.model} is one too many")
    if parsed.skip_tokenizer_init:
        # Without it an id outside the vocabulary kills the engine, and EOS, bad words and grammars do not work.
        _refuse("--skip-tokenizer-init is not possible: the worker checks requests with the tokenizer")


def _refuse(message: str) -> NoReturn:
    raise EngineFailed(f"vLLM's engine arguments are wrong: {message}")
