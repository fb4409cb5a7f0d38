"""What replies contain, and who may steer workers over HTTP."""

from dataclasses import dataclass
from typing import Literal

from tokenwire.coordinator.auth.admin_key import AdminKey
from tokenwire.options import Bounds, Option, Section, check_bounds, option, shared


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """What replies contain, where clients do not say."""

    debug_headers: bool = option(
        False,
        Option(
            "--enable-debug-headers",
            "Report the chosen worker, and why, in the header X-Tokenwire-Worker.",
            Section.ROUTING,
        ),
    )
    exclude_tools_when_tool_choice_none: bool = option(
        False,
        Option(
            "--exclude-tools-when-tool-choice-none",
            "Hide tools from the template where tool_choice is none.",
            Section.TEMPLATES,
        ),
    )
    token_history: Literal["auto", "exact", "template"] = option(
        "auto",
        Option(
            "--token-history",
            "Prompts of continued conversations: exact reuses the token ids of earlier turns, template "
            "renders all turns again, auto is exact where clients ask for token ids or name a session.",
            Section.HISTORY,
        ),
    )
    prompt_tokens_details: bool = option(
        False, Option("--enable-prompt-tokens-details", "Report cached prompt tokens in usage.", Section.REPLIES)
    )
    force_include_usage: bool = option(
        False, Option("--enable-force-include-usage", "Send usage at the end of every stream.", Section.REPLIES)
    )
    render_route: bool = option(
        False,
        Option(
            "--enable-render-route",
            "Serve .../render next to chat and completions, which returns the rendered prompt, for debugging.",
            Section.REPLIES,
        ),
    )
    tokens_as_token_ids: bool = option(
        False, Option("--return-tokens-as-token-ids", 'Write tokens in logprobs as "token_id:N".', Section.REPLIES)
    )
    kv_transfer_params: bool = option(
        False,
        Option(
            "--allow-kv-transfer-params",
            "Pass kv_transfer_params and ec_transfer_params of requests to engines. Only behind a router that"
            " sets them: whoever sends them can crash engines and read the prompts of others.",
            Section.TRANSFERS,
        ),
    )
    abort_all: bool = shared(False, "--enable-rl")
    """Whether a client may end everybody's requests at once."""


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """Who may steer workers over HTTP, and how long that may take."""

    admin_key: AdminKey | None = option(
        None,
        Option(
            "--admin-key-file",
            "File with the key for admin routes; or set TOKENWIRE_ADMIN_KEY.",
            Section.ADMIN,
            path="existing file",
            contents="admin key",
            parse=AdminKey,
        ),
    )
    """None: whoever reaches these routes may use them."""
    timeout_s: float = option(
        600.0,
        Option(
            "--control-timeout",
            "Seconds that a worker may take for an admin operation.",
            Section.ADMIN,
            bounds=Bounds(above=0),
        ),
    )
    rl_routes: bool = option(
        False,
        Option(
            "--enable-rl",
            "Serve admin routes for RL trainers: pause, weights, adapters. Set an admin key.",
            Section.ADMIN,
        ),
    )
    lora_routes: bool = option(
        False,
        Option(
            "--enable-lora-routes",
            "Serve admin routes that load LoRA adapters (vLLM: VLLM_ALLOW_RUNTIME_LORA_UPDATING).",
            Section.ADMIN,
        ),
    )
    stale_weights: bool = option(
        False,
        Option("--allow-stale-weights", "Route requests also to workers that missed a weight update.", Section.ADMIN),
    )

    def __post_init__(self) -> None:
        check_bounds(self)
