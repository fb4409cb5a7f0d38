"""OpenAI's Agents SDK: streamed runs over the Responses API, with an agent as a tool, and with its compaction."""

import asyncio
import os
import sys

from agents import Agent, Runner, SQLiteSession, function_tool, set_default_openai_client, set_tracing_disabled
from agents.memory import OpenAIResponsesCompactionSession
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


def compacting_session() -> OpenAIResponsesCompactionSession:
    """Return a session that is compacted after each message."""
    return OpenAIResponsesCompactionSession(
        "session",
        SQLiteSession("session"),
        model=f"gpt-{model}",  # it takes no other names
        compaction_mode="input",
        should_trigger_compaction=lambda context: True,
    )


async def main() -> None:
    """Run it to its end; with compaction, in two messages."""
    session = compacting_session() if "COMPACT" in os.environ else None
    for message in [prompt] if session is None else [prompt, "Go on."]:
        result = Runner.run_streamed(outer, message, session=session)
        async for _ in result.stream_events():
            pass
        print(result.final_output)


asyncio.run(main())
