"""Anthropic's client: messages, streamed and not, counts, and errors as its own classes."""

import sys

from anthropic import Anthropic, BadRequestError

client = Anthropic(base_url=sys.argv[1], api_key="unused", max_retries=0)
model = "smollm2-135m-instruct"
messages = [{"role": "user", "content": "Say hello."}]
greedy = {"top_k": 1}

message = client.messages.create(model=model, messages=messages, max_tokens=12, extra_body=greedy)
assert message.content[0].type == "text"
assert message.usage.output_tokens <= 12

with client.messages.stream(model=model, messages=messages, max_tokens=12, extra_body=greedy) as stream:
    text = "".join(stream.text_stream)
assert text == message.content[0].text

assert client.messages.count_tokens(model=model, messages=messages).input_tokens == message.usage.input_tokens

try:
    client.messages.create(model=model, messages=messages, max_tokens=12, extra_body={"top_k": -9})
except BadRequestError as error:
    assert error.body["error"]["type"] == "invalid_request_error"
else:
    raise AssertionError("a wrong top_k was taken")
