"""Which parsers to use, by vLLM's names and flags, and the model's properties that they need."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tokenwire.options import Option, Section, option, shared

# Parsers that belong to one model type, for workers that do not report theirs.
_KINDS = {"openai": "gpt_oss", "openai_gptoss": "gpt_oss", "kimi_k2": "kimi_k2", "kimi_k3": "kimi_k3"}


@dataclass(frozen=True, slots=True)
class ParserSettings:
    """The operator's configuration of parsers."""

    tool_call_parser: str | None = option(
        None, Option("--tool-call-parser", "vLLM's tool call parser. Needs the extra `parsers`.", Section.PARSERS)
    )
    reasoning_parser: str | None = option(
        None, Option("--reasoning-parser", "vLLM's reasoning parser. Needs the extra `parsers`.", Section.PARSERS)
    )
    enable_auto_tool_choice: bool = option(
        False, Option("--enable-auto-tool-choice", "Allow tool_choice auto; needs --tool-call-parser.", Section.PARSERS)
    )
    tool_parser_plugin: str | None = option(
        None,
        Option("--tool-parser-plugin", "Python file that registers additional tool call parsers.", Section.PARSERS),
    )
    reasoning_parser_plugin: str | None = option(
        None,
        Option(
            "--reasoning-parser-plugin", "Python file that registers additional reasoning parsers.", Section.PARSERS
        ),
    )
    load_whole_vllm: bool = option(
        False,
        Option(
            "--load-whole-vllm",
            "Import vLLM whole for the parsers, with torch, instead of what they use: needs more time and 500 MB. "
            "Always on with a plugin.",
            Section.PARSERS,
        ),
    )
    tool_strict_level: str = option(
        "auto",
        Option("--tool-strict-level", "How strictly tool calls follow their schemas, as in vLLM.", Section.PARSERS),
    )
    default_chat_template_kwargs: dict[str, Any] = shared({}, "--default-chat-template-kwargs")
    """The chat template's values: some parsers check whether thinking is enabled."""

    @property
    def parses(self) -> bool:
        """Whether vLLM is needed: a tool parser without automatic choice does nothing, as in vLLM."""
        return bool(self.reasoning_parser or (self.tool_call_parser and self.enable_auto_tool_choice))

    @property
    def names(self) -> dict[str, str]:
        """The parsers in use, by what they are."""
        tools = self.tool_call_parser if self.enable_auto_tool_choice else None
        names = {"tool call parser": tools, "reasoning parser": self.reasoning_parser}
        return {what: name for what, name in names.items() if name}

    @property
    def loads_whole_vllm(self) -> bool:
        """Whether parsers are imported with all of vLLM, which code of others may use."""
        return bool(self.load_whole_vllm or self.tool_parser_plugin or self.reasoning_parser_plugin)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Properties of a model that parsers need."""

    name: str = ""
    model_type: str | None = None
    """From the model's config.json."""
    architecture: str | None = None

    def kind(self, settings: ParserSettings) -> str | None:
        """Return the model's type, or the one for which its parsers are made."""
        names = (settings.tool_call_parser, settings.reasoning_parser)
        return self.model_type or next((_KINDS[name] for name in names if name in _KINDS), None)

    def as_config(self, settings: ParserSettings) -> SimpleNamespace:
        """Return the fields of vLLM's ModelConfig that parsers read: for kimi's tool call ids and cohere's grammar."""
        hf_config = SimpleNamespace(model_type=self.kind(settings))
        return SimpleNamespace(
            model=self.name,
            architecture=self.architecture,
            hf_config=hf_config,
            hf_text_config=hf_config,
            hf_overrides=None,
        )
