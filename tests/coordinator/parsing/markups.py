"""How models write calls and reasoning, one markup for each of vLLM's parsers, with the tokens that it needs."""

from dataclasses import dataclass
from typing import Any

from tests.coordinator.parsing.markup_writers import (
    Writes,
    array_of_calls,
    as_unicode_json,
    call_objects,
    each_call,
    elements,
    of_cohere,
    of_functiongemma,
    of_gemma4,
    of_kimi_k3,
    of_minimax_m3,
    python_calls,
    wrapped_calls,
)


@dataclass(frozen=True)
class Markup:
    """The markup of a parser."""

    writes: Writes = lambda calls: ""
    """Writes calls; a parser of reasoning has none."""
    thinks: str = ""
    """Reasoning: a pattern with its text in place of {}."""
    answers: str = "{}"
    """Text: a pattern likewise."""
    tokens: str = ""
    """Words that are single tokens, between blanks."""


_THINK = {"thinks": "<think>{}</think>"}
_XML = "<tool_call>\n<function=%n>\n%a</function>\n</tool_call>", "<parameter=%k>\n%v\n</parameter>\n"
_XML_TOKENS = "<think> </think> <tool_call> </tool_call> <|im_start|> <|im_end|>"
_GLM = "<tool_call>%n%a</tool_call>", "<arg_key>%k</arg_key><arg_value>%v</arg_value>"
_GLM_TOKENS = "<think> </think> <tool_call> </tool_call> <arg_key> </arg_key> <arg_value> </arg_value>"
_HY = "<tool_calls>%c</tool_calls>"
_DEEPSEEK = (
    "<think> </think> <｜tool▁calls▁begin｜> <｜tool▁calls▁end｜> "
    "<｜tool▁call▁begin｜> <｜tool▁call▁end｜> <｜tool▁sep｜>"
)
_CALLS_OF_V3 = "<｜tool▁calls▁begin｜>%c<｜tool▁calls▁end｜>"


def _dsml(block: str, space: str = "") -> Writes:
    mark = f"｜DSML｜{space}"
    return elements(
        f"<{mark}{block}>\n%c\n</{mark}{block}>",
        f'<{mark}invoke name="%n">\n%a</{mark}invoke>',
        f'<{mark}parameter name="%k" string="%t">%v</{mark}parameter>\n',
    )


def _invoke(block: str, parameter: str = '<parameter name="%k">%v</parameter>\n', name: str = "invoke") -> Writes:
    return elements(f"<{block}>\n%c\n</{block}>", f'<{name} name="%n">\n%a</{name}>', parameter)


_PLAMO = "<|plamo:begin_{0}:plamo|>{1}<|plamo:end_{0}:plamo|>"
_PLAMO_CALL = _PLAMO.format(
    "tool_request",
    _PLAMO.format("tool_name", "%n")
    + _PLAMO.format("tool_arguments", "<|plamo:constrain|>json<|plamo:msg|>%a"),
)  # fmt: skip
_HARMONY = "<|channel|> <|message|> <|end|> <|start|> <|call|> <|return|> <|constrain|>"
_COHERE: dict[str, Any] = {
    "thinks": "<|START_THINKING|>{}<|END_THINKING|>",
    "tokens": "<|START_THINKING|> <|END_THINKING|> <|START_ACTION|> <|END_ACTION|> <|START_RESPONSE|> <|END_RESPONSE|> "
    "<|START_TEXT|> <|END_TEXT|>",
}
_INKLING = (
    "<|message_model|> <|content_text|> <|content_thinking|> <|content_invoke_tool_json|> <|content_invoke_tool_text|> "
    "<|content_tool_error|> <|content_model_end_sampling|> <|end_message|>"
)
_MUSE = "<|start|>assistant to={}<|message|>"
_MUSE_CALL = (
    _MUSE.format("tool.%n")
    + '<atem:function_calls>\n<atem:invoke name="%n">\n%a</atem:invoke>\n</atem:function_calls><|eom|>'
)
_KIMI = (
    "<think> </think> <|tool_calls_section_begin|> <|tool_calls_section_end|> <|tool_call_begin|> <|tool_call_end|> "
    "<|tool_call_argument_begin|>"
)
_K2 = (
    "<ifm|think> </ifm|think> <ifm|tool_calls> </ifm|tool_calls> <ifm|tool_call> </ifm|tool_call> <ifm|arg_key> "
    "</ifm|arg_key> <ifm|arg_value> </ifm|arg_value>"
)

TOOLS: dict[str, Markup] = {
    "apertus": Markup(
        lambda calls: f"<|tools_prefix|>{as_unicode_json([{name: given} for name, given in calls])}<|tools_suffix|>",
        tokens="<|tools_prefix|> <|tools_suffix|>",
    ),
    "cohere_command3": Markup(of_cohere, **_COHERE),
    "cohere_command4": Markup(of_cohere, answers="<|START_TEXT|>{}<|END_TEXT|>", **_COHERE),
    "deepseek_v3": Markup(
        wrapped_calls(
            _CALLS_OF_V3, "<｜tool▁call▁begin｜>function<｜tool▁sep｜>%n\n```json\n%a\n```<｜tool▁call▁end｜>", "\n"
        ),
        tokens=_DEEPSEEK,
    ),
    "deepseek_v31": Markup(
        wrapped_calls(_CALLS_OF_V3, "<｜tool▁call▁begin｜>%n<｜tool▁sep｜>%a<｜tool▁call▁end｜>"), tokens=_DEEPSEEK
    ),
    "deepseek_v32": Markup(_dsml("function_calls"), tokens="｜DSML｜ <think> </think>"),
    "deepseek_v4": Markup(_dsml("tool_calls"), tokens="｜DSML｜ <think> </think>"),
    "deepseek_v41": Markup(_dsml("calls", " "), tokens="｜DSML｜ <think> </think>"),
    "dots": Markup(_invoke("dots_function_call")),
    "ernie45": Markup(each_call("<tool_call>\n", "\n</tool_call>"), tokens="<think> </think> <tool_call> </tool_call>"),
    "functiongemma": Markup(of_functiongemma, tokens="<start_function_call> <end_function_call> <escape>"),
    "gemma4": Markup(of_gemma4, tokens='<|channel> <channel|> <|tool_call> <tool_call|> <|turn> <|"|>'),
    "gigachat3": Markup(
        lambda calls: "<|function_call|>" + call_objects(calls)[0],
        tokens="<|function_call|> <|message_sep|> <|role_sep|>",
    ),
    "glm45": Markup(elements("%c", *_GLM), tokens=_GLM_TOKENS),
    "glm47": Markup(elements("%c", *_GLM), tokens=_GLM_TOKENS),
    "granite": Markup(array_of_calls("<|tool_call|> "), tokens="<|tool_call|>"),
    "granite-20b-fc": Markup(each_call("<function_call> ", "", " "), tokens="<function_call>"),
    "granite4": Markup(each_call("<tool_call>\n", "\n</tool_call>"), tokens="<tool_call> </tool_call>"),
    "hermes": Markup(each_call("<tool_call>\n", "\n</tool_call>"), tokens="<tool_call> </tool_call> <|im_end|>"),
    "hunyuan_a13b": Markup(array_of_calls("<tool_calls>", "</tool_calls>")),
    "hy_v3": Markup(
        elements(_HY, "<tool_call>%n<tool_sep>%a</tool_call>", _GLM[1]),
        tokens=f"<tool_calls> </tool_calls> <tool_sep> {_GLM_TOKENS}",
    ),
    "hy_v4": Markup(elements(_HY, *_GLM), tokens=f"<tool_calls> </tool_calls> {_GLM_TOKENS}"),
    "inkling": Markup(
        each_call("<|message_model|><|content_invoke_tool_json|>", "<|end_message|>", "", "args"),
        answers="<|message_model|><|content_text|>{}<|end_message|>",
        tokens=_INKLING,
    ),
    "internlm": Markup(
        each_call("<|action_start|><|plugin|>", "<|action_end|>", "", "parameters"),
        tokens="<|action_start|> <|plugin|> <|action_end|>",
    ),
    "jamba": Markup(array_of_calls("<tool_calls>", "</tool_calls>"), tokens="<tool_calls> </tool_calls>"),
    "k2_horizon": Markup(
        elements(
            "<ifm|tool_calls>\n%c\n</ifm|tool_calls>",
            "<ifm|tool_call>%n\n%a</ifm|tool_call>",
            "<ifm|arg_key>%k</ifm|arg_key><ifm|arg_value>%v</ifm|arg_value>\n",
        ),
        tokens=_K2,
    ),
    "kimi_k2": Markup(
        wrapped_calls(
            "<|tool_calls_section_begin|>%c<|tool_calls_section_end|>",
            "<|tool_call_begin|>functions.%n:%i<|tool_call_argument_begin|>%a<|tool_call_end|>",
        ),
        tokens=_KIMI,
    ),
    "kimi_k3": Markup(
        of_kimi_k3,
        answers="<|open|>response<|sep|>{}<|close|>response<|sep|>",
        tokens="<|open|> <|close|> <|sep|>",
    ),
    "lfm2": Markup(
        python_calls("<|tool_call_start|>[%c]<|tool_call_end|>"), tokens="<|tool_call_start|> <|tool_call_end|>"
    ),
    "ling3": Markup(elements("%c", *_GLM), tokens=_GLM_TOKENS),
    "llama3_json": Markup(each_call("", "", "; ", "parameters"), tokens="<|python_tag|>"),
    "llama4_json": Markup(each_call("", "", "; ", "parameters"), tokens="<|python_tag|>"),
    "llama4_pythonic": Markup(
        python_calls("<|python_start|>[%c]<|python_end|>"), tokens="<|python_start|> <|python_end|>"
    ),
    "longcat": Markup(
        each_call("<longcat_tool_call>\n", "\n</longcat_tool_call>"), tokens="<longcat_tool_call> </longcat_tool_call>"
    ),
    "mimo": Markup(elements("%c", *_XML), tokens=_XML_TOKENS),
    "minicpm5": Markup(
        elements("%c", '<function name="%n">%a</function>', '<param name="%k">%v</param>', between="\n"),
        tokens="<function </function> <param </param>",
    ),
    "minimax_m2": Markup(
        _invoke("minimax:tool_call"), tokens="<minimax:tool_call> </minimax:tool_call> <think> </think>"
    ),
    "minimax_m3": Markup(of_minimax_m3, tokens="]<]minimax[>[ <mm:think> </mm:think>"),
    "mistral": Markup(array_of_calls("[TOOL_CALLS]"), tokens="[TOOL_CALLS] [ARGS] [THINK] [/THINK]"),
    "muse_glimmer": Markup(
        elements("%c", _MUSE_CALL, '<atem:parameter name="%k">%v</atem:parameter>\n', between=""),
        answers=_MUSE.format("user") + "{}<|eom|>",
        tokens="<|start|> <|message|> <|eom|> <|eot|>",
    ),
    "olmo3": Markup(python_calls("<function_calls>\n%c\n</function_calls>", "\n")),
    "openai": Markup(
        wrapped_calls(
            "%c", "<|start|>assistant<|channel|>commentary to=functions.%n <|constrain|>json<|message|>%a<|call|>"
        ),
        answers="<|start|>assistant<|channel|>final<|message|>{}<|end|>",
        tokens=_HARMONY,
    ),
    "phi4_mini_json": Markup(array_of_calls("functools")),
    "plamo3": Markup(wrapped_calls(_PLAMO.format("tool_requests", "%c"), _PLAMO_CALL)),
    "poolside_v1": Markup(elements("%c", "<tool_call>%n\n%a</tool_call>", _GLM[1] + "\n"), tokens=_GLM_TOKENS),
    "pythonic": Markup(python_calls("[%c]")),
    "qwen3_coder": Markup(elements("%c", *_XML), tokens=_XML_TOKENS),
    "qwen3_json": Markup(each_call("<tool_call>\n", "\n</tool_call>"), tokens="<tool_call> </tool_call> <|im_end|>"),
    "qwen3_xml": Markup(elements("%c", *_XML), tokens=_XML_TOKENS),
    "seed_oss": Markup(
        elements("%c", _XML[0].replace("tool_call", "seed:tool_call"), _XML[1]),
        tokens="<seed:think> </seed:think> <seed:tool_call> </seed:tool_call> <seed:bos> <seed:eos>",
    ),
    "step3": Markup(
        elements(
            "<｜tool_calls_begin｜>\n%c\n<｜tool_calls_end｜>",
            '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="%n">%a</steptml:invoke>'
            "<｜tool_call_end｜>",
            '<steptml:parameter name="%k">%v</steptml:parameter>',
        ),
        tokens="<think> </think> <｜tool_calls_begin｜> <｜tool_calls_end｜> <｜tool_call_begin｜> <｜tool_call_end｜> "
        "<｜tool_sep｜>",
    ),
    "step3p5": Markup(elements("%c", *_XML), tokens=_XML_TOKENS),
    "xlam": Markup(array_of_calls("")),
}

REASONING: dict[str, Markup] = {
    "cohere_command3": Markup(answers="<|START_RESPONSE|>{}<|END_RESPONSE|>", **_COHERE),
    "cohere_command4": Markup(answers="<|START_TEXT|>{}<|END_TEXT|>", **_COHERE),
    "gemma4": Markup(thinks="<|channel>thought\n{}<channel|>", tokens=TOOLS["gemma4"].tokens),
    "granite": Markup(thinks="Here is my thought process: {} Here is my response: "),
    "hunyuan_a13b": Markup(thinks="<think>\n{}\n</think>\n", answers="<answer>\n{}\n</answer>"),
    "inkling": Markup(
        thinks="<|message_model|><|content_thinking|>{}<|end_message|>",
        answers=TOOLS["inkling"].answers,
        tokens=_INKLING,
    ),
    "k2_horizon": Markup(thinks="<ifm|think>{}</ifm|think>", tokens=_K2),
    "kimi_k3": Markup(
        thinks="<|open|>think<|sep|>{}<|close|>think<|sep|>",
        answers=TOOLS["kimi_k3"].answers,
        tokens=TOOLS["kimi_k3"].tokens,
    ),
    "minimax_m3": Markup(thinks="<mm:think>{}</mm:think>", tokens=TOOLS["minimax_m3"].tokens),
    "mistral": Markup(thinks="[THINK]{}[/THINK]", tokens=TOOLS["mistral"].tokens),
    "muse_glimmer": Markup(
        thinks=_MUSE.format("self") + "{}<|eom|>",
        answers=TOOLS["muse_glimmer"].answers,
        tokens=TOOLS["muse_glimmer"].tokens,
    ),
    "openai_gptoss": Markup(
        thinks="<|channel|>analysis<|message|>{}<|end|>", answers=TOOLS["openai"].answers, tokens=_HARMONY
    ),
    "olmo3": Markup(thinks="<think>{}</think>", tokens="Ġ</ </ think >"),
    "poolside_v1": Markup(thinks="<think>{}</think>", tokens="<think> </think> <assistant>"),
    "plamo3": Markup(thinks=_PLAMO.format("think", "{}")),
    "seed_oss": Markup(thinks="<seed:think>{}</seed:think>", tokens=TOOLS["seed_oss"].tokens),
}
"""Parsers of reasoning; all others have <think>."""
THINK = Markup(thinks="<think>{}</think>", tokens="<think> </think>")
