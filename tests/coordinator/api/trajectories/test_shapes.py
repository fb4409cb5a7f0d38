"""Nodes as clients get them: in the graph as what they add, as traces with all of their prompts."""

from tests.coordinator.trajectories.turns import assistant_message, said_by_user, sampled_choice, turn_of
from tokenwire.coordinator.api.trajectories.shapes import node_object, prompt_length, trace_object
from tokenwire.coordinator.trajectories.graph import build_graph

TOOLS = [{"type": "function"}]
CALLS = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
GRAPH = build_graph(
    [
        turn_of(
            [1, 2],
            sampled_choice("a", [3]),
            messages=[said_by_user("x")],
            tools=TOOLS,
            started=1.0,
            ended=1.5,
            adapter="lora",
        ),
        turn_of(
            [4, 5],
            sampled_choice("b", [6, 7], spans=[("v1", 0, 2)], message=CALLS),
            base="a",
            messages=[assistant_message("a"), said_by_user("y")],
            message_base="a",
            message_start=1,
            same_tools=True,
            adapter="lora",
        ),
    ]
)


def test_a_node_has_what_it_adds_to_its_parent() -> None:
    """Ids, messages and tools."""
    first, second = (node_object(node) for node in GRAPH.nodes.values())

    assert (first["prompt_start"], first["prompt_ids"], first["tools"]) == (0, [1, 2], TOOLS)
    assert (second["parent"], second["link"]) == ("a", "ids")
    assert (second["prompt_start"], second["prompt_ids"], second["tools"]) == (3, [4, 5], None)
    assert (second["message_start"], second["messages"]) == (1, [assistant_message("a"), said_by_user("y")])
    assert (second["completion_ids"], second["mask"], second["logprobs"]) == ([6, 7], [1, 1], [-6.0, -7.0])
    assert second["weight_versions"] == [{"version": "v1", "start": 0, "end": 2}]


def test_a_trace_has_all_of_its_prompt() -> None:
    """Under rLLM's names."""
    first, second = (trace_object("s", node) for node in GRAPH.nodes.values())

    assert (first["trace_id"], first["finish_reason"], first["latency_ms"]) == ("s:a", "stop", 500.0)
    assert second["prompt_token_ids"] == [1, 2, 3, 4, 5]
    assert second["messages"] == [said_by_user("x"), assistant_message("a"), said_by_user("y")]
    assert (second["model"], second["finish_reason"]) == ("lora", "tool_calls")
    assert second["token_counts"] == {"prompt": 5, "completion": 2}
    assert prompt_length(GRAPH.nodes["b"]) == 5
