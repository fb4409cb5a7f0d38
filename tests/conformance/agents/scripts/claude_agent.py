"""Claude's Agent SDK: a streamed query through the program that comes with it."""

import asyncio
import sys

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

_, model, prompt = sys.argv[1:]


async def main() -> None:
    """Run it to its end."""
    options = ClaudeAgentOptions(model=model, permission_mode="bypassPermissions", include_partial_messages=True)
    async for message in query(prompt=prompt, options=options):
        if isinstance(message, ResultMessage):
            assert not message.is_error
            print(message.result)


asyncio.run(main())
