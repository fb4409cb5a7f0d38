"""Characters of several tokens, broken characters, special tokens in the text."""

from tests.conformance.parity.corpus.prompts_used import EOS, FACES, PARTY, SCRAPS, SUM
from tests.conformance.parity.request import chat, text

REQUESTS = {
    "emoji": chat(PARTY),
    "emoji, cut inside one": chat(PARTY, max_tokens=8),
    "emoji with logprobs": chat(PARTY, max_tokens=8, logprobs=True, top_logprobs=2),
    "emoji with logprobs, text": text(FACES, max_tokens=8, logprobs=2),
    "scraps of characters": text("a", temperature=2.0, seed=8, allowed_token_ids=SCRAPS, max_tokens=40),
    "scraps with logprobs": text("a", temperature=2.0, seed=8, allowed_token_ids=SCRAPS, max_tokens=20, logprobs=1),
    "prompt that ends inside a character": text([10813], allowed_token_ids=[232, 227], max_tokens=6),
    "Chinese": text("你好，世界。你好，世界。你好，", max_tokens=16),
    "faces": text(FACES),
    "special tokens shown": text(
        "<|im_start|>user\nHi<|im_end|>\n",
        skip_special_tokens=False,
        temperature=1.0,
        seed=9,
        allowed_token_ids=[0, 1, 504],
    ),
    "special tokens shown, unspaced": text(
        "<|im_start|>",
        skip_special_tokens=False,
        spaces_between_special_tokens=False,
        temperature=1.0,
        seed=10,
        allowed_token_ids=[0, 1, 504, 3950],
    ),
    "special tokens shown, unspaced, in a chat": chat(
        "x",
        skip_special_tokens=False,
        spaces_between_special_tokens=False,
        temperature=1.0,
        seed=10,
        allowed_token_ids=[0, 1, 504, 3950],
    ),
    "special tokens hidden": text("x", temperature=1.0, seed=9, allowed_token_ids=[0, 1, 504]),
    "special tokens hidden, with logprobs": chat(
        "x", temperature=1.0, seed=9, allowed_token_ids=[0, 1, 504], logprobs=True, top_logprobs=2
    ),
    "end shown": chat(SUM, EOS, skip_special_tokens=False, include_stop_str_in_output=True),
    "end not shown": chat(SUM, EOS, skip_special_tokens=False),
    "surrogates in a message": chat("a \ud83d\ude00 b"),
    "control characters in a message": chat("a\u0000b\u001fc\u2028d"),
}
