"""langchain-openai: a loop over streamed messages with bound tools."""

import sys

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from tools import TOOLS, schema_of

url, model, prompt = sys.argv[1:]
chat = ChatOpenAI(model=model, base_url=f"{url}/v1", api_key="unused", stream_usage=True)
bound = chat.bind_tools([schema_of(name) for name in TOOLS])
messages = [HumanMessage(prompt)]
while True:
    reply = None
    for piece in bound.stream(messages):
        reply = piece if reply is None else reply + piece
    messages.append(reply)
    assert reply.usage_metadata["input_tokens"] > 0
    if not reply.tool_calls:
        break
    for made in reply.tool_calls:
        messages.append(ToolMessage(TOOLS[made["name"]](**made["args"]), tool_call_id=made["id"]))
print(reply.content)
