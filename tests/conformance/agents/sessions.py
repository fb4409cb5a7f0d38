"""The sessions of every agent: the replies that script them, and what is true afterwards."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.agents.agent import Agent, Compaction, Place, Tools, model_output

Rule = Mapping[str, str]
"""A rule of `--sim-replies`: `prompt`, an expression, and `reply`."""

DONE = "All of it is done."
BEFORE, AFTER, OTHER = "alpha-7919", "beta-7919", "gamma-5040"
"""What files hold, which no prompt says."""
_AGENT_ID = r'"agent_id":\s*"(?P<id>[^"]+)"'
_SUMMARY = "The file was read. Left to do: the command."


def reply_rule(prompt: str, *seen: str, read: Sequence[str] = (), reply: str) -> Rule:
    """Return a rule for a session with this in its prompt, in which all of these have been seen since.

    read: what is anywhere in the prompt, as some agents put files before it.
    """
    before, after = ("".join(f"(?=.*(?:{each}))" for each in found) for found in (read, seen))
    return {"prompt": f"(?s)\\A{before}.*?{re.escape(prompt)}{after}", "reply": reply}


@dataclass(frozen=True)
class AgentSession:
    """A session of one agent."""

    ability: str
    rules: list[Rule]
    """The last turn first."""
    files: Mapping[str, str] = field(default_factory=dict)
    """What is there before."""
    expected: Mapping[str, str] = field(default_factory=dict)
    """What is there afterwards."""
    is_cut: bool = False
    """Whether it is interrupted while a reply is streamed."""
    compaction: Compaction | None = None
    """How it is compacted, if it is."""


def task_of(name: str, ability: str) -> str:
    """Return a session's prompt, which the rules know it by."""
    return f"Task {name}-{ability}: do it in this folder."


def editing_session(name: str, agent: Agent, place: Place, tools: Tools) -> AgentSession:
    """Read, edit wrongly, edit, and run a command; several calls at once if it takes them."""
    task, notes, more = task_of(name, "edit"), place.path("notes.txt"), place.path("more.txt")
    read = [tools.read(notes), tools.read(more)][: 1 + tools.is_parallel]
    both = [BEFORE, OTHER][: 1 + tools.is_parallel]
    run = tools.run(f"cat {notes} && echo made-by-$((6 * 7)) | tee {place.path('made.txt')}")
    rules = [
        reply_rule(task, f"{AFTER}.*made-by-42", reply=_last(tools)),
        reply_rule(task, f"(?:{tools.fail}).*<tool_response>", read=both, reply=model_output(run)),
        reply_rule(task, tools.fail, read=both, reply=model_output(tools.edit(notes, BEFORE, AFTER))),
        reply_rule(task, read=both, reply=model_output(tools.edit(notes, "omega-1", AFTER))),
        reply_rule(task, reply=model_output(*read, text="I will look.")),
    ]
    files = {"notes.txt": f"{BEFORE}\n", "more.txt": f"{OTHER}\n"}
    return AgentSession("edit", rules, files, {"notes.txt": f"{AFTER}\n", "made.txt": "made-by-42\n"})


def nested_session(name: str, agent: Agent, place: Place, tools: Tools) -> AgentSession | None:
    """Give a part to an agent of its own, and continue with its answer."""
    if tools.nest is None:
        return None
    task, part = task_of(name, "nested"), f"Part {name}-inner: run it."
    rules = [
        reply_rule(task, "inner answer is 42", reply=_last(tools)),
        *([] if tools.wait is None else [reply_rule(task, _AGENT_ID, reply=model_output(tools.wait("{{id}}")))]),
        reply_rule(part, "inner-42", reply=model_output(text="The inner answer is 42.")),
        reply_rule(part, reply=model_output(tools.run(f"echo inner-$((6 * 7)) | tee {place.path('inner.txt')}"))),
        reply_rule(task, reply=model_output(tools.nest(part))),
    ]
    return AgentSession("nested", rules, {}, {"inner.txt": "inner-42\n"})


def compacted_session(name: str, agent: Agent, place: Place, tools: Tools) -> AgentSession | None:
    """See so much that the session is compacted, and continue with the summary."""
    return None if agent.compact is None else _compacted("compact", agent.compact, name, place, tools)


def compacted_by_server(name: str, agent: Agent, place: Place, tools: Tools) -> AgentSession | None:
    """The same, with a summary that the server asks the model for."""
    way = agent.compact_by_server
    return None if way is None else _compacted("compact-by-server", way, name, place, tools)


def _compacted(ability: str, compaction: Compaction, name: str, place: Place, tools: Tools) -> AgentSession:
    task = task_of(name, ability)
    print_much = tools.run(f"yes 'a long line' | head -c {compaction.filler_chars}; echo printed-$((6 * 7))")
    run = tools.run(f"echo made-by-$((6 * 7)) | tee {place.path('made.txt')}")
    waits = compaction.is_between_messages
    summary = f"{_SUMMARY} ({name}-summary)"
    rules = [
        reply_rule(f"{name}-summary", "made-by-42", reply=_last(tools)),
        {"prompt": f"(?s)(?:{compaction.asks})", "reply": model_output(text=compaction.summary.format(summary))},
        reply_rule(f"{name}-summary", reply=model_output(run)),
        *([reply_rule(task, "printed-42", reply=model_output(text="It is printed."))] if waits else []),
        reply_rule(task, reply=model_output(print_much)),
    ]
    return AgentSession(ability, rules, {}, {"made.txt": "made-by-42\n"}, compaction=compaction)


def interrupted_session(name: str, agent: Agent, place: Place, tools: Tools) -> AgentSession:
    """Be interrupted in the middle of a reply that would take minutes."""
    long = model_output(text="I count. " + " ".join(map(str, range(20_000))))
    return AgentSession("cut", [reply_rule(task_of(name, "cut"), reply=long)], is_cut=True)


def _last(tools: Tools) -> str:
    return model_output(text=DONE) if tools.finish is None else model_output(tools.finish(DONE))


SESSIONS: dict[str, Callable[[str, Agent, Place, Tools], AgentSession | None]] = {
    "edit": editing_session,
    "nested": nested_session,
    "compact": compacted_session,
    "compact-by-server": compacted_by_server,
    "cut": interrupted_session,
}
"""By ability."""


def failures_of(session: AgentSession, work: Path, code: int | None, output: str) -> list[str]:
    """Return what is not as it should be after a session."""
    found = [] if code == 0 or session.is_cut else [f"it ended with {code}"]
    if not session.is_cut and DONE not in output:
        found.append("it did not show the last reply")
    for name, content in session.expected.items():
        path = work / name
        if not path.is_file() or path.read_text() != content:
            found.append(f"{name} is not {content!r}")
    return found
