"""OpenAI's Agents SDK: a streamed run over the Responses API, with an agent as a tool."""

import asyncio
import sys

from agents import Agent, Runner, function_tool, set_default_openai_client, set_tracing_disabled
from openai import AsyncOpenAI
from tools import TOOLS

url, model, prompt = sys.argv[1:]
set_tracing_disabled(True)
set_default_openai_client(AsyncOpenAI(base_url=f"{url}/v1", api_key="unused"))
tools = [function_tool(tool) for tool in TOOLS.values()]
inner = Agent(name="Inner", instructions="Do as you are told.", model=model, tools=tools)
outer = Agent(
    name="Outer",
    instructions="Do as you are told.",
    model=model,
    tools=[*tools, inner.as_tool(tool_name="delegate", tool_description="Give a part to another agent.")],
)


async def main() -> None:
    """Run it to its end."""
    result = Runner.run_streamed(outer, prompt)
    async for _ in result.stream_events():
        pass
    print(result.final_output)


asyncio.run(main())
