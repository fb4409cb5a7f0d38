"""Streams: their options, what their chunks carry, how many tokens share one."""

from typing import Any

from tests.conformance.parity.corpus.prompts_used import COLORS, FRANCE, STORY, SUM
from tests.conformance.parity.request import Request, as_is, chat, rejected, text

_USAGE = {"include_usage": True}
_ALWAYS = {"include_usage": True, "continuous_usage_stats": True}


def _both(**options: Any) -> tuple[Request, Request]:
    return as_is(chat(STORY, **options)), as_is(text(FRANCE, **options))


_NAMED: dict[str, dict[str, Any]] = {
    "streamed": {"stream": True},
    "not streamed, said so": {"stream": False, "max_tokens": 3},
    "streamed, no options": {"stream": True, "stream_options": None},
    "streamed, empty options": {"stream": True, "stream_options": {}},
    "streamed, no usage": {"stream": True, "stream_options": {"include_usage": False}},
    "streamed, usage": {"stream": True, "stream_options": _USAGE},
    "streamed, usage always": {"stream": True, "stream_options": _ALWAYS},
    "streamed, usage always, but not in the end": {
        "stream": True,
        "stream_options": {"include_usage": False, "continuous_usage_stats": True},
    },
    "streamed, unknown options": {"stream": True, "stream_options": {"include_usage": True, "x": 1}, "max_tokens": 3},
    "streamed, two choices, usage always": {
        "stream": True,
        "stream_options": _ALWAYS,
        "n": 2,
        "temperature": 1,
        "seed": 3,
    },
    "streamed, three tokens at a time": {"stream": True, "stream_interval": 3, "stream_options": _USAGE},
    "streamed, one token at a time": {"stream": True, "stream_interval": 1, "max_tokens": 4},
    "full, three tokens at a time": {"stream_interval": 3, "max_tokens": 4},
    "streamed, ids": {"stream": True, "return_token_ids": True, "stream_options": _ALWAYS},
    "streamed, no ids": {"stream": True, "return_token_ids": False, "max_tokens": 4},
    "streamed, one token": {"stream": True, "max_tokens": 1, "stream_options": _USAGE},
    "streamed, logprobs, usage always": {"stream": True, "logprobs": 1, "stream_options": _ALWAYS, "max_tokens": 5},
    "streamed, stopped, ids": {
        "stream": True,
        "return_token_ids": True,
        "stop": ["time", "answer"],
        "ignore_eos": True,
    },
}
_WRONG: dict[str, dict[str, Any]] = {
    "options without a stream": {"stream_options": _USAGE},
    "options, but no stream": {"stream": False, "stream_options": _USAGE},
    "options of a wrong type": {"stream": True, "stream_options": "usage"},
    "an option of a wrong type": {"stream": True, "stream_options": {"include_usage": "perhaps"}},
    "stream of a wrong type": {"stream": "perhaps"},
    "no tokens at a time": {"stream": True, "stream_interval": 0},
    "tokens at a time, of a wrong type": {"stream": True, "stream_interval": "x"},
    "streamed, rejected by the engine": {"stream": True, "allowed_token_ids": [99999]},
    "streamed, another model": {"stream": True, "model": "other"},
    "streamed, prompt too long": {"stream": True, "max_tokens": 9999},
}

REQUESTS = {
    **{name: _both(**options)[0] for name, options in _NAMED.items()},
    **{f"text, {name}": _both(**options)[1] for name, options in _NAMED.items()},
    **{name: rejected(_both(**options)[0]) for name, options in _WRONG.items()},
    **{f"text, {name}": rejected(_both(**options)[1]) for name, options in _WRONG.items()},
    "streamed, stop held back": as_is(chat(COLORS, stream=True, stop=["Green!!"])),
    "streamed, prompt text": as_is(chat(SUM, stream=True, return_prompt_text=True, max_tokens=3)),
    "text, streamed, two prompts, usage always": as_is(
        text([FRANCE, "One two"], stream=True, stream_options=_ALWAYS, max_tokens=4)
    ),
    "text, streamed, two prompts, ids": as_is(
        text([FRANCE, "One two"], stream=True, return_token_ids=True, n=2, temperature=1, seed=4, max_tokens=4)
    ),
    "text, streamed, echo, ids": as_is(text(FRANCE, stream=True, echo=True, return_token_ids=True, max_tokens=4)),
    "text, streamed, echo only": as_is(text(FRANCE, stream=True, echo=True, max_tokens=0, stream_options=_USAGE)),
    "text, streamed, echo, logprobs": as_is(text(FRANCE, stream=True, echo=True, logprobs=1, max_tokens=4)),
    "echo, streamed, ids": as_is(
        chat(
            [{"role": "user", "content": "x"}, {"role": "assistant", "content": "So"}],
            stream=True,
            echo=True,
            add_generation_prompt=False,
            return_token_ids=True,
            max_tokens=4,
        )
    ),
}
