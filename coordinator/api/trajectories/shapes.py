"""The JSON of a session's nodes: as the graph has them, and as rLLM's traces."""

from typing import Any

from tokenwire.coordinator.trajectories.graph import GraphNode


def node_object(node: GraphNode) -> dict[str, Any]:
    """Return a node of the graph, with what it adds to its parent."""
    turn, choice, parent = node.turn, node.choice, node.parent
    is_linked = parent is not None and node.link == "ids"
    repeats_tools = parent is not None and parent.tools == node.tools
    return {
        "id": node.id,
        "parent": None if parent is None else parent.id,
        "link": node.link,
        "request_id": turn.request_id,
        "index": choice.index,
        "model": turn.model,
        "adapter": turn.adapter,
        "sampling_params": turn.sampling,
        "message_start": node.message_start,
        "messages": None if node.conversation is None else node.conversation.after(node.message_start),
        "tools": None if repeats_tools else node.tools,
        "message": node.message,
        "prompt_start": parent.length if parent is not None and is_linked else 0,
        "prompt_ids": node.prompt_ids.tolist(),
        "completion_ids": choice.token_ids.tolist(),
        "logprobs": None if choice.logprobs is None else choice.logprobs.tolist(),
        "mask": [1] * len(choice.token_ids),
        "weight_versions": spans_object(node),
        "finish": choice.finish,
        "stop_reason": choice.stop_reason,
        "resumed": choice.resumed,
        "rewards": node.rewards,
        "started": turn.started,
        "first_token": turn.first_token,
        "ended": turn.ended,
        "workers": turn.workers,
    }


def spans_object(node: GraphNode) -> list[dict[str, Any]] | None:
    """Return the weight versions of a node's tokens; None if they have no labels."""
    spans = node.choice.spans
    return None if spans is None else [dict(zip(("version", "start", "end"), span, strict=True)) for span in spans]


def trace_object(session_id: str, node: GraphNode) -> dict[str, Any]:
    """Return a node as a trace, with all of its prompt."""
    turn, choice = node.turn, node.choice
    message = dict(node.message or {})
    prompt = node.all_prompt_ids().tolist()
    calls = choice.finish == "stop" and message.get("tool_calls")
    return {
        "trace_id": f"{session_id}:{node.id}",
        "session_id": session_id,
        "model": turn.adapter or turn.model,
        "messages": [] if node.conversation is None else node.conversation.after(0),
        "prompt_token_ids": prompt,
        "response_message": message,
        "completion_token_ids": choice.token_ids.tolist(),
        "logprobs": None if choice.logprobs is None else choice.logprobs.tolist(),
        "finish_reason": "tool_calls" if calls else choice.finish,
        "latency_ms": 1000 * (turn.ended - turn.started),
        "token_counts": {"prompt": len(prompt), "completion": len(choice.token_ids)},
        "timestamp": turn.ended,
        "metadata": {
            "parent": None if node.parent is None else f"{session_id}:{node.parent.id}",
            "weight_versions": spans_object(node),
            "rewards": node.rewards,
            "request_id": turn.request_id,
        },
        "raw_request": None,
        "raw_response": None,
    }


def prompt_length(node: GraphNode) -> int:
    """Return the number of ids of a node's whole prompt."""
    return node.length - len(node.choice.token_ids)
