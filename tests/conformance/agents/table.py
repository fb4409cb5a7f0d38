"""The agents: how each is started, configured and scripted."""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tests.conformance.agents.agent import Agent, Call, Compaction, Place, Tools, tool_use

_SCRIPTS = Path(__file__).parent / "scripts"

_CODEX_CONFIGURATION = """\
model_provider = "tokenwire"
[model_providers.tokenwire]
name = "tokenwire"
base_url = "{url}/v1"
wire_api = "responses"
[analytics]
enabled = false
"""


_CODEX_LIMIT = ("-c", "model_auto_compact_token_limit=45000")


def _codex(place: Place, prompt: str) -> Sequence[str]:
    place.write("config.toml", _CODEX_CONFIGURATION.format(url=place.url))
    options = ["--skip-git-repo-check", "--json", "--sandbox", "danger-full-access"]
    return ["codex", "exec", *options, "-m", place.model, prompt]


def _codex_edit(path: str, before: str, after: str) -> Call:
    patch = f"*** Begin Patch\n*** Update File: {path}\n@@\n-{before}\n+{after}\n*** End Patch"
    return tool_use("exec_command", cmd=f"apply_patch <<'EOF'\n{patch}\nEOF")


def _claude(place: Place, prompt: str) -> Sequence[str]:
    options = ["--output-format", "stream-json", "--verbose", "--permission-mode", "bypassPermissions"]
    return ["claude", "-p", prompt, "--model", place.model, *options]


def _claude_environment(place: Place) -> Mapping[str, str]:
    quiet = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER", "IS_SANDBOX")
    return {"ANTHROPIC_BASE_URL": place.url, "ANTHROPIC_AUTH_TOKEN": "unused", **dict.fromkeys(quiet, "1")}


_CLAUDE_TOOLS = Tools(
    read=lambda path: tool_use("Read", file_path=path),
    edit=lambda path, before, after: tool_use("Edit", file_path=path, old_string=before, new_string=after),
    run=lambda command: tool_use("Bash", command=command, description="Run it"),
    fail="String to replace not found",
    nest=lambda prompt: tool_use("Agent", description="Run it", prompt=prompt, run_in_background=False),
)
_CLAUDE_COMPACTION = Compaction(
    "create a detailed summary of", environment={"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "60000"}
)


def _opencode(place: Place, prompt: str) -> Sequence[str]:
    model = {"name": place.model, "limit": {"context": 60_000, "output": 4096}}
    options = {"baseURL": f"{place.url}/v1", "apiKey": "unused"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {place.model: model}}
    settings = {"autoupdate": False, "share": "disabled", "provider": {"tokenwire": provider}}
    place.write(".config/opencode/opencode.json", json.dumps(settings))
    return ["opencode", "run", "--model", f"tokenwire/{place.model}", "--format", "json", prompt]


def _qwen(place: Place, prompt: str) -> Sequence[str]:
    return ["qwen", "--auth-type", "openai", "--yolo", "--output-format", "stream-json", "-p", prompt]


def _qwen_environment(place: Place) -> Mapping[str, str]:
    return {"OPENAI_BASE_URL": f"{place.url}/v1", "OPENAI_API_KEY": "unused", "OPENAI_MODEL": place.model}


def _mini(place: Place, prompt: str) -> Sequence[str]:
    options = ["--model", f"openai/{place.model}", "--yolo", "--exit-immediately", "--cost-limit", "0"]
    return ["mini", *options, "--output", place.path("../trajectory.json"), "--task", prompt]


def _mini_environment(place: Place) -> Mapping[str, str]:
    quiet = {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1"}
    return {"OPENAI_API_BASE": f"{place.url}/v1", "OPENAI_API_KEY": "unused", **quiet}


def _aider(place: Place, prompt: str) -> Sequence[str]:
    for command in (["init", "--quiet"], ["add", "."]):  # it knows the files that git does
        subprocess.run(["git", *command], cwd=place.work, check=True)
    # It runs no commands of a model's, but tests after each edit; only if they fail, it shows their output.
    tests = ["--auto-test", "--test-cmd", "echo made-by-$((6 * 7)) | tee made.txt; exit 1"]
    quiet = ["--no-check-update", "--no-show-model-warnings", "--no-show-release-notes", "--analytics-disable"]
    options = ["--edit-format", "diff", "--yes-always", "--no-auto-commits", "--no-gitignore", "--map-tokens", "0"]
    return ["aider", "--model", f"openai/{place.model}", *options, *quiet, *tests, "--message", prompt]


def _aider_edit(path: str, before: str, after: str) -> Call:
    return f"{Path(path).name}\n```\n<<<<<<< SEARCH\n{before}\n=======\n{after}\n>>>>>>> REPLACE\n```"


def _shell_edit(path: str, before: str, after: str) -> str:
    return f"grep -q {before} {path} && sed -i s/{before}/{after}/ {path} || {{ echo no-text-$((6 * 7)); exit 3; }}"


def _script(name: str) -> Callable[[Place, str], Sequence[str]]:
    """Start a script with a framework's own loop; it has the tools of scripts/tools.py."""
    return lambda place, prompt: ["python", str(_SCRIPTS / name), place.url, place.model, prompt]


_SCRIPT_TOOLS = Tools(
    read=lambda path: tool_use("read_file", path=path),
    edit=lambda path, before, after: tool_use("edit_file", path=path, before=before, after=after),
    run=lambda command: tool_use("run_command", command=command),
    fail="there is no text",
)

AGENTS = {
    "codex": Agent(
        "@openai/codex@0.169.0",
        _codex,
        Tools(
            read=lambda path: tool_use("exec_command", cmd=f"cat {path}"),
            edit=_codex_edit,
            run=lambda command: tool_use("exec_command", cmd=command),
            fail="Failed to find expected lines",
            nest=lambda prompt: tool_use("multi_agent_v1__spawn_agent", message=prompt),
            wait=lambda agent: tool_use("multi_agent_v1__wait_agent", targets=[agent], timeout_ms=60_000),
        ),
        lambda place: {"CODEX_HOME": str(place.home)},
        Compaction("CONTEXT CHECKPOINT COMPACTION", _CODEX_LIMIT),
        Compaction("Write only the summary", [*_CODEX_LIMIT, "-c", 'model_providers.tokenwire.name="OpenAI"']),
        names_session=True,
    ),
    "claude-code": Agent(
        "@anthropic-ai/claude-code@2.1.332",
        _claude,
        _CLAUDE_TOOLS,
        _claude_environment,
        _CLAUDE_COMPACTION,
        names_session=True,
    ),
    "opencode": Agent(
        "opencode-ai@1.18.33",
        _opencode,
        Tools(
            read=lambda path: tool_use("read", filePath=path),
            edit=lambda path, before, after: tool_use("edit", filePath=path, oldString=before, newString=after),
            run=lambda command: tool_use("bash", command=command, description="Run it"),
            fail="[Cc]ould not find oldString|oldString not found",
            nest=lambda prompt: tool_use("task", description="Run it", prompt=prompt, subagent_type="general"),
        ),
        compact=Compaction(
            "anchored summary",
            environment={"OPENCODE_CONFIG_CONTENT": json.dumps({"compaction": {"tail_turns": 0}})},
            filler_chars=20_000,
        ),
        names_session=True,
    ),
    "qwen-code": Agent(
        "@qwen-code/qwen-code@0.24.4",
        _qwen,
        Tools(
            read=lambda path: tool_use("read_file", file_path=path),
            edit=lambda path, before, after: tool_use("edit", file_path=path, old_string=before, new_string=after),
            run=lambda command: tool_use(
                "run_shell_command", command=command, is_background=False, description="Run it"
            ),
            fail="[Ff]ailed to edit, could not find|could not find the string|0 occurrences",
            nest=lambda prompt: tool_use(
                "agent", description="Run it", prompt=prompt, subagent_type="general-purpose", run_in_background=False
            ),
        ),
        _qwen_environment,
        Compaction(
            "component that summarizes a conversation when its context window",
            files={".qwen/settings.json": json.dumps({"context": {"autoCompactThreshold": 0.6}})},
            summary="<state_snapshot>{}</state_snapshot>",
            filler_chars=20_000,
        ),
    ),
    "mini-swe-agent": Agent(
        "mini-swe-agent==2.4.6",
        _mini,
        Tools(
            read=lambda path: tool_use("bash", command=f"cat {path}"),
            edit=lambda path, before, after: tool_use("bash", command=_shell_edit(path, before, after)),
            run=lambda command: tool_use("bash", command=command),
            fail="no-text-42",
            finish=lambda text: tool_use("bash", command=f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo '{text}'"),
        ),
        _mini_environment,
    ),
    "aider": Agent(
        "aider-chat==0.86.2",
        _aider,
        Tools(
            read=lambda path: f"Add {Path(path).name} to the chat.",
            edit=_aider_edit,
            run=lambda command: "",
            fail="failed to exactly match",
        ),
        lambda place: {"OPENAI_API_BASE": f"{place.url}/v1", "OPENAI_API_KEY": "unused"},
    ),
    "openai-agents": Agent(
        "openai-agents==0.24.0",
        _script("openai_agents.py"),
        replace(_SCRIPT_TOOLS, nest=lambda prompt: tool_use("delegate", input=prompt)),
        compact=Compaction("Write only the summary", environment={"COMPACT": "1"}, is_between_messages=True),
    ),
    "claude-agent-sdk": Agent(
        "claude-agent-sdk==0.2.189",
        _script("claude_agent.py"),
        _CLAUDE_TOOLS,
        _claude_environment,
        _CLAUDE_COMPACTION,
        names_session=True,
    ),
    "litellm": Agent("litellm==1.110.2", _script("litellm_agent.py"), _SCRIPT_TOOLS),
    "langchain-openai": Agent("langchain-openai==1.7.4", _script("langchain_agent.py"), _SCRIPT_TOOLS),
}
"""By name."""
