"""Settings of replies and of the API above: what replies contain by default, which fields and routes are allowed."""

from dataclasses import dataclass
from typing import Literal

from tokenwire.options import Bounds, Option, Section, Unit, check_bounds, option, shared


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """What replies contain by default, and what clients may request."""

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
            "renders all turns again, auto is exact if clients request token ids or name a conversation.",
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
            "Serve /tokenwire/v1/.../render, which shows what workers would get of a request, for debugging.",
            Section.REPLIES,
        ),
    )
    tokens_as_token_ids: bool = option(
        False, Option("--return-tokens-as-token-ids", 'Write tokens in logprobs as "token_id:N".', Section.REPLIES)
    )
    max_request_bytes: int = option(
        128 * 2**20,
        Option(
            "--max-request-mb",
            "Maximum memory of a request: 26 KiB, 1.5 KiB for each choice, 40 bytes for each token of its prompts or "
            "2 for each character, its sampling parameters once for each prompt, and, times n, 10 bytes for each token "
            "that a choice repeats, "
            "64 for each log-probability of its prompts (the first 16,384 of a prompt 176 more, once), 240 for "
            "each of its reply, of which a stream counts one token unless its end repeats them, and 100 for each token "
            "of a reply that is not streamed. If a request names no maximum of these, 4,096 for each choice have to "
            "fit, and replies end with `length` where they take all of it. Texts that the response of a model that "
            "pools repeats count too.",
            Section.REPLIES,
            unit=Unit.MiB,
            bounds=Bounds(above=0),
            default_text="128; with --enable-rl 1024",
            default_with=("--enable-rl", 2**30),
        ),
    )
    kv_transfer_params: bool = option(
        False,
        Option(
            "--allow-kv-transfer-params",
            "Pass kv_transfer_params and ec_transfer_params of requests to engines. Only behind a router that"
            " sets them: clients that send them can crash engines and read the prompts of others.",
            Section.TRANSFERS,
        ),
    )
    trust_media_options: bool = option(
        False,
        Option(
            "--trust-request-mm-kwargs",
            "Accept mm_processor_kwargs and media_io_kwargs in requests, which change what pictures cost.",
            Section.MEDIA,
        ),
    )
    abort_all: bool = shared(False, "--enable-rl")
    """Whether a client may abort the requests of all clients at once."""

    def __post_init__(self) -> None:
        check_bounds(self)
