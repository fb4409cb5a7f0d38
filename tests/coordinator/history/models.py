"""Models small enough to build in a test: one token per byte, and the special tokens of one family of templates."""

import json
import re

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.coordinator.history.dialogues import model_of
from tokenwire.coordinator.text.tokenizer import ModelTokenizer
from tokenwire.coordinator.types import ServedModel

_MARKS = re.compile(r"<\|[a-z_]+\|>|</?[a-z_]+>|</s>")

CHATML = """
{%- if messages[0].role != 'system' %}{{ '<|im_start|>system\\nBe nice.<|im_end|>\\n' }}{% endif %}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' + (m.content or '') }}
{%- for call in m.tool_calls or [] %}{{ '<tool_call>' + call.function | tojson + '</tool_call>' }}{% endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""With a default system prompt."""

THINKING = """
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.reasoning and loop.last %}{{ '<think>' + m.reasoning + '</think>' }}{% endif %}
{{- m.content.split('</think>')[-1] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""Drops the reasoning of earlier turns."""

MARKER = """
{%- for m in messages %}
{{- '<|' + ('observation' if m.role == 'tool' else m.role) + '|>' + (m.content or '') }}
{%- for call in m.tool_calls or [] %}{{ '<tool_call>' + call.function.name + call.function.arguments | tojson }}
{{- '</tool_call>' }}{% endfor %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}
{#- <|user|> <|system|> <|observation|> <|endoftext|> #}"""
"""Replies end where the next message begins: with a token that both share."""

LINES = MARKER.replace("{{- '<|' +", "{{- ('' if loop.first else '\\n') + '<|' +")
"""The same with a line break between messages, which models omit."""

BREAKS = MARKER.replace("{%- endfor %}\n{%- if add", "{{- '\\n' }}{%- endfor %}\n{%- if add")
"""The same with a line break after each message."""

REJECTS = CHATML + "{% if not add_generation_prompt %}{{ raise_exception('Ask something.') }}{% endif %}"
"""Rejects conversations that end with a reply."""

NAMES = """
{%- for m in messages %}{{- '<|start|>' + m.role + '<text>' + (m.content or '') }}
{%- for call in m.tool_calls or [] %}{{ '<call>' + call.function.name + '</call>' }}{% endfor %}{{ '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"""
"""Renders only the names of calls, without arguments."""

CALLS_FIRST = """
{%- for m in messages %}{{- '<|start|>' + m.role }}
{%- for call in m.tool_calls or [] %}{{ '<call>' + call.function.arguments | tojson + '</call>' }}{% endfor %}
{{- '<text>' + (m.content or '') + '</text>' + ('<|calls|>' if m.tool_calls else '<|end|>') }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"""
"""Renders calls before their message's content, and ends such replies differently."""

TWICE = """
{%- for m in messages %}
{{- '<|open|>' + m.role + '<|sep|>' + m.content + '<|close|>' + 'text<|sep|><|close|>' + 'turn<|sep|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|open|>assistant<|sep|>' }}{% endif %}"""
"""Closes replies by two tags of three tokens each, as Kimi-K3's."""

OTHER_END = """
{%- for m in messages %}{{ '<|start|>' + m.role + '<|message|>' + m.content }}
{{- '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"""
"""The last reply ends differently from those before it."""


def small_model(template: str = CHATML, eos: str = "<|im_end|>", **mark: bool) -> ServedModel:
    """Return a model with a template, and a tokenizer with the template's special tokens and options of AddedToken."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({char: index for index, char in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    marks = sorted({eos, *_MARKS.findall(template)})
    backend.add_tokens([AddedToken(text, **{"special": True, "normalized": False, **mark}) for text in marks])
    files = {
        "tokenizer.json": backend.to_str().encode(),
        "tokenizer_config.json": json.dumps({"eos_token": eos, "chat_template": template}).encode(),
    }
    return model_of(ModelTokenizer.from_files(files))


def encoded(model: ServedModel, text: str) -> list[int]:
    """Return the ids of a text, including special tokens."""
    return model.tokenizer.encode(text, add_special_tokens=False)


def decoded(model: ServedModel, ids: list[int]) -> str:
    """Return the text of ids, including special tokens."""
    return model.tokenizer.decode(ids, skip_special_tokens=False)
