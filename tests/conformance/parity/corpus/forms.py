"""Forms of prompts and messages, the template, truncation, echo."""

from tests.conformance.parity.corpus.prompts_used import EOS, FRANCE, SUM, TURNS
from tests.conformance.parity.request import as_is, chat, rejected, text

_OPEN = [{"role": "user", "content": SUM}, {"role": "assistant", "content": "Well, the answer"}]
_PARTS = [{"type": "text", "text": "Name"}, {"type": "text", "text": "a"}]
_LONG = "word " * 300
_TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[{{ extra | default('none') }}]"
_DOCUMENTS = "{% for d in documents %}{{ d.title }}: {{ d.text }}\n{% endfor %}{{ messages[-1].content }}"
_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def _messages(**message: object) -> list[dict[str, object]]:
    return [{"role": "user", "content": "Hi"}, message, {"role": "user", "content": "And?"}]


REQUESTS = {
    "turns": chat(TURNS, EOS),
    "content parts": chat([{"role": "user", "content": _PARTS}]),
    "content as a plain part": chat([{"role": "user", "content": [{"type": "text", "text": SUM}]}]),
    "content parts of strings": chat([{"role": "user", "content": ["Name", "a"]}]),
    "content parts, refusal": chat(_messages(role="assistant", content=[{"type": "refusal", "refusal": "No."}])),
    "no content": chat(_messages(role="assistant")),
    "content of null": chat(_messages(role="assistant", content=None)),
    "content empty": chat([{"role": "user", "content": ""}]),
    "a developer's message": chat([{"role": "developer", "content": "Be terse."}, {"role": "user", "content": SUM}]),
    "a tool's message": chat(_messages(role="tool", content="4", tool_call_id="call_1")),
    "a function's message": chat(_messages(role="function", name="add", content="4")),
    "an unknown role": chat(_messages(role="referee", content="Go on.")),
    "names": chat([{"role": "user", "name": "Ada", "content": SUM}]),
    "reasoning in a message": chat(_messages(role="assistant", reasoning="Hm.", content="Yes.")),
    "reasoning_content in a message": chat(_messages(role="assistant", reasoning_content="Hm.", content="Yes.")),
    "unknown keys in a message": chat([{"role": "user", "content": SUM, "mood": "good"}]),
    "continued message": chat(_OPEN, EOS, add_generation_prompt=False, continue_final_message=True),
    "continued message with echo": chat(_OPEN, add_generation_prompt=False, continue_final_message=True, echo=True),
    "no generation prompt": chat(SUM, add_generation_prompt=False, max_tokens=5),
    "no generation prompt after a system message": chat(
        [{"role": "system", "content": "x"}], add_generation_prompt=False, max_tokens=5
    ),
    "echo of a user's message": chat(SUM, echo=True),
    "echo with ids": chat(_OPEN, add_generation_prompt=False, echo=True, return_token_ids=True, max_tokens=4),
    "echo, two choices": chat(_OPEN, add_generation_prompt=False, echo=True, n=2, temperature=1, seed=1, max_tokens=4),
    "echo with logprobs": as_is(chat(SUM, echo=True, logprobs=True, top_logprobs=1, max_tokens=3)),
    "special tokens around a chat": chat(SUM, add_special_tokens=True, max_tokens=5),
    "template": chat(SUM, chat_template=_TEMPLATE, max_tokens=5),
    "template with keywords": chat(SUM, chat_template=_TEMPLATE, chat_template_kwargs={"extra": "more"}, max_tokens=5),
    "template with documents": chat(
        SUM, chat_template=_DOCUMENTS, documents=[{"title": "T", "text": "Two and two."}], max_tokens=5
    ),
    "documents that the template does not use": chat(SUM, documents=[{"title": "T", "text": "x"}], max_tokens=5),
    "template keywords, unused": chat(SUM, chat_template_kwargs={"enable_thinking": False}, max_tokens=5),
    "template keywords that are the request's own": chat(
        SUM, chat_template_kwargs={"add_generation_prompt": False}, max_tokens=5
    ),
    "reasoning effort": chat(SUM, reasoning_effort="low", max_tokens=5),
    "reasoning effort in a template": chat(
        SUM, chat_template="{{ reasoning_effort }} {{ enable_thinking }}", reasoning_effort="none", max_tokens=5
    ),
    "prompt text": chat(SUM, return_prompt_text=True, max_tokens=4),
    "truncated": chat(_LONG, truncate_prompt_tokens=20, max_tokens=4),
    "truncated to what fits": as_is(chat("word " * 3000, truncate_prompt_tokens=-1, max_tokens=4)),
    "truncated on the left": chat(_LONG, truncate_prompt_tokens=20, truncation_side="left", max_tokens=4),
    "truncated on the right": chat(_LONG, truncate_prompt_tokens=20, truncation_side="right", max_tokens=4),
    "truncation not needed": chat(SUM, truncate_prompt_tokens=500, max_tokens=4),
    "a side without truncation": chat(SUM, truncation_side="left", max_tokens=4),
    "text": text(FRANCE),
    "texts": text([FRANCE, "One two three", "def main():"], max_tokens=9),
    "texts, two choices each": text([FRANCE, "One two"], temperature=0.9, seed=13, n=2, max_tokens=9),
    "ids": text([504, 3575, 282, 4649, 314]),
    "lists of ids": text([[504, 3575], [282, 4649, 314]], max_tokens=9),
    "text without special tokens": text(FRANCE, add_special_tokens=False, max_tokens=5),
    "text, echo": text(FRANCE, echo=True, max_tokens=5),
    "text, echo with logprobs": text(FRANCE, echo=True, logprobs=1, max_tokens=5),
    "text, echo with ids": text(FRANCE, echo=True, return_token_ids=True, max_tokens=5),
    "text, echo of ids": text([504, 3575, 282], echo=True, max_tokens=5),
    "text, echo, full": as_is(text(FRANCE, echo=True, max_tokens=5)),
    "text, echo with logprobs, full": as_is(text(FRANCE, echo=True, logprobs=1, max_tokens=5)),
    "text, echo only, full": as_is(text(FRANCE, echo=True, max_tokens=0)),
    "text, echo only": text(FRANCE, echo=True, max_tokens=0),
    "text, echo only, with logprobs": text(FRANCE, echo=True, max_tokens=0, logprobs=1),
    "text, echo, two prompts, two choices": text(
        [FRANCE, "One two"], echo=True, temperature=0.9, seed=13, n=2, max_tokens=3
    ),
    "text, echo, truncated": text(_LONG, echo=True, truncate_prompt_tokens=8, max_tokens=3),
    "text, truncated": text(_LONG, truncate_prompt_tokens=20, max_tokens=4),
    "text, truncated on the left": text(_LONG, truncate_prompt_tokens=20, truncation_side="left", max_tokens=4),
    "ids, truncated": text(list(range(100, 200)), truncate_prompt_tokens=10, max_tokens=4),
    "ids, truncated on the right": text(
        list(range(100, 200)), truncate_prompt_tokens=10, truncation_side="right", max_tokens=4
    ),
    "truncated to nothing": rejected(text(FRANCE, truncate_prompt_tokens=0)),
    "truncated to less than nothing": rejected(chat(SUM, truncate_prompt_tokens=-2)),
    "truncated beyond the context": rejected(chat(SUM, truncate_prompt_tokens=4096)),
    "truncated on no side": rejected(chat(SUM, truncate_prompt_tokens=9, truncation_side="top")),
    "continued and generated": rejected(chat(_OPEN, continue_final_message=True)),
    "continued and generated, both said": rejected(
        chat(_OPEN, continue_final_message=True, add_generation_prompt=True)
    ),
    "template that fails": rejected(chat(SUM, chat_template="{{ raise_exception('no') }}")),
    "template that is none": rejected(chat(SUM, chat_template="{% for %}")),
    "template in the keywords": chat(SUM, chat_template_kwargs={"chat_template": "x"}, max_tokens=4),
    "documents of a wrong type": rejected(chat(SUM, documents="x")),
    "reasoning effort unknown": rejected(chat(SUM, reasoning_effort="extreme")),
    "an image": rejected(chat([{"role": "user", "content": [_IMAGE]}])),
    "a part without a type": chat([{"role": "user", "content": [{"text": "Name a"}]}]),
    "a part of an unknown type": rejected(chat([{"role": "user", "content": [{"type": "smell", "smell": "x"}]}])),
    "a part that lacks its text": rejected(chat([{"role": "user", "content": [{"type": "text"}]}])),
    "messages empty": rejected(chat([])),
    "messages of a wrong type": rejected(chat(None, messages="hello")),
    "messages of numbers": rejected(chat([1, 2])),
    "a message without a role": rejected(chat([{"content": "x"}])),
    "a message with a role of null": rejected(chat([{"role": None, "content": "x"}])),
    "a message with content of a wrong type": rejected(chat([{"role": "user", "content": 5}])),
    "prompt too long": rejected(chat("x " * 3000)),
    "prompt far too long": rejected(chat("x " * 300_000)),
    "prompt of the whole context": rejected(text([504] * 2048)),
    "prompt of more than the context": rejected(text([504] * 2049)),
    "prompt and max_tokens of a whole context": as_is(text([504] * 2047, max_tokens=2048)),
    "prompt id too large": rejected(text([49152])),
    "prompt id negative": rejected(text([-1])),
    "prompt id far too large": rejected(text([2**40])),
    "prompt id too large, among others": rejected(text([[504], [504, 49152]])),
    "prompt empty": rejected(text("")),
    "prompt of no ids": rejected(text([])),
    "prompts, one empty": rejected(text(["", "x"])),
    "prompts, one of no ids": rejected(text([[], [504]])),
    "prompts of both kinds": rejected(text(["x", [504]])),
    "prompt of a wrong type": rejected(text({"a": 1})),
    "prompt of numbers that are no ids": rejected(text([1.5])),
    "prompt missing": rejected(text(None)),
    "prompt embeddings, not enabled": rejected(text(None, prompt_embeds="AAAA")),
    "suffix": rejected(text(FRANCE, suffix="!")),
}
