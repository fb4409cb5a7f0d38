"""Options of the OpenAI API, with vLLM's names: `tokenwire coordinator` reads them, `tokenwire serve` hands them on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tokenwire.cli.admission_options import ADMISSION_OPTIONS
from tokenwire.cli.main import Command
from tokenwire.cli.observability_options import OBSERVABILITY_OPTIONS
from tokenwire.cli.options import OptionGroup

_CHOOSING_WORKERS = OptionGroup(
    "Choosing workers",
    {
        "routing": {
            "type": click.Choice(["affinity", "load", "round-robin"]),
            "default": "affinity",
            "help": "How a worker is chosen: affinity has prompts go where their beginning is cached unless that "
            "costs more than it saves, load has the fewest sequences, round-robin takes turns.",
        },
    },
    {
        "enable_debug_headers": "Tell in X-Tokenwire-Worker which worker had a request, and why.",
    },
)
_CHAT_TEMPLATES = OptionGroup(
    "Chat templates",
    {
        "chat_template": {"help": "Jinja template, a file or its text, that replaces the model's own."},
        "chat_template_content_format": {
            "type": click.Choice(["auto", "string", "openai"]),
            "default": "auto",
            "help": "How templates get message content: as text, or as a list of parts.",
        },
        "default_chat_template_kwargs": {"help": "JSON object of values for templates, where requests give none."},
    },
    {
        "exclude_tools_when_tool_choice_none": "Do not show templates the tools of requests with tool_choice none.",
        "trust_request_chat_template": "Let requests bring chat templates of their own.",
    },
)
_TOOLS_AND_REASONING = OptionGroup(
    "Tools and reasoning",
    {
        "tool_call_parser": {"help": "vLLM's name of the parser for tool calls. Needs the extra `parsers`."},
        "reasoning_parser": {"help": "vLLM's name of the parser for reasoning. Needs the extra `parsers`."},
        "tool_parser_plugin": {"help": "Python file that registers more tool parsers."},
        "reasoning_parser_plugin": {"help": "Python file that registers more reasoning parsers."},
        "tool_strict_level": {
            "default": "auto",
            "help": "How strictly tool calls are bound to their schemas, as in vLLM.",
        },
    },
    {
        "enable_auto_tool_choice": "Let the model choose to call tools; needs --tool-call-parser.",
    },
)
_CONVERSATIONS = OptionGroup(
    "Conversations",
    {
        "token_history": {
            "type": click.Choice(["auto", "exact", "template"]),
            "default": "auto",
            "help": "Prompts of conversations that go on: exact re-uses the ids of earlier turns, template "
            "renders everything anew, auto is exact where clients ask for ids or name a session.",
        },
        "history_mb": {
            "type": float,
            "default": 256.0,
            "help": "Memory for ids of earlier turns; see --token-history.",
        },
        "history_ttl": {
            "type": float,
            "default": 3600.0,
            "help": "Seconds that a turn is kept after its last use.",
        },
        "history_store": {
            "help": "Redis in which coordinators share earlier turns: redis://HOST:PORT/DB. Needs the extra `redis`."
        },
        "history_store_password_file": {
            "type": click.Path(exists=True, dir_okay=False, path_type=Path),
            "help": "File with its password; or set TOKENWIRE_HISTORY_STORE_PASSWORD.",
        },
    },
)
_REPLIES = OptionGroup(
    "Replies",
    {},
    {
        "enable_prompt_tokens_details": "Tell in usage how much of a prompt was cached.",
        "enable_force_include_usage": "End every stream with usage.",
        "enable_render_route": "Serve .../render beside chat and completions: what a request becomes, for debugging.",
        "return_tokens_as_token_ids": 'Write tokens in logprobs as "token_id:N".',
    },
)
_DISAGGREGATION = OptionGroup(
    "Prefill and decode",
    {},
    {
        "allow_kv_transfer_params": "Hand kv_transfer_params and ec_transfer_params of requests on to engines. Only "
        "where a router of your own fills them: whoever sends them can end engines and read others' prompts.",
    },
)
_STEERING = OptionGroup(
    "Steering",
    {
        "admin_key_file": {
            "type": click.Path(exists=True, dir_okay=False, path_type=Path),
            "help": "File with the key that steering routes ask for; or set TOKENWIRE_ADMIN_KEY.",
        },
        "control_timeout": {
            "type": click.FloatRange(min=0, min_open=True),
            "default": 600.0,
            "help": "Seconds that a worker may take for a steering operation.",
        },
    },
    {
        "enable_rl": "Serve routes that steer workers, for RL trainers: pause, weights, adapters. Set an admin key.",
        "enable_lora_routes": "Serve routes that load LoRA adapters (vLLM: VLLM_ALLOW_RUNTIME_LORA_UPDATING).",
        "allow_stale_weights": "Send requests also to workers that missed a weight update.",
    },
)

_GROUPS = (
    ADMISSION_OPTIONS,
    _CHOOSING_WORKERS,
    _CHAT_TEMPLATES,
    _TOOLS_AND_REASONING,
    _CONVERSATIONS,
    _REPLIES,
    _DISAGGREGATION,
    _STEERING,
    OBSERVABILITY_OPTIONS,
)


def api_options(command: Command) -> Command:
    """Add every option of the API to a command, which gets their values as keyword arguments."""
    for group in reversed(_GROUPS):
        command = group.add(command)
    return command


def api_arguments(given: Mapping[str, Any]) -> list[str]:
    """Return command line arguments that give another command these values."""
    return [argument for group in _GROUPS for argument in group.arguments(given)]
