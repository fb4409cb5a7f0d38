"""OpenAI's client: chats and completions, streamed and not, with ids, and errors as its own classes."""

import sys

from openai import BadRequestError, NotFoundError, OpenAI

client = OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="unused", max_retries=0)
model = client.models.list().data[0].id
messages = [{"role": "user", "content": "Say hello."}]
ids = {"return_token_ids": True}

chat = client.chat.completions.create(
    model=model, messages=messages, temperature=0, max_tokens=12, logprobs=True, top_logprobs=2, extra_body=ids
)
(choice,) = chat.choices
assert len(choice.token_ids) == len(choice.logprobs.content) == chat.usage.completion_tokens
assert len(chat.prompt_token_ids) == chat.usage.prompt_tokens

text, streamed = "", []
for chunk in client.chat.completions.create(
    model=model, messages=messages, temperature=0, max_tokens=12, stream=True, extra_body=ids
):
    text += chunk.choices[0].delta.content or ""
    streamed += getattr(chunk.choices[0], "token_ids", None) or []
assert (text, streamed) == (choice.message.content, choice.token_ids)

completion = client.completions.create(
    model=model, prompt=chat.prompt_token_ids, temperature=0, max_tokens=12, logprobs=1, extra_body=ids
)
assert completion.choices[0].token_ids == choice.token_ids
assert completion.choices[0].text == choice.message.content

response = client.responses.create(model=model, input="Say hello.", temperature=0, max_output_tokens=12)
assert response.output_text == choice.message.content

for wrong, kind in (({"model": "nope"}, NotFoundError), ({"model": model, "temperature": 9}, BadRequestError)):
    try:
        client.chat.completions.create(messages=messages, **wrong)
    except kind as error:
        assert error.body["message"]
    else:
        raise AssertionError(f"{wrong} was taken")
