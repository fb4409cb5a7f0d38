"""Nodes come after those whose ids, or else whose messages, their prompts extend."""

from array import array

from tests.coordinator.trajectories.turns import assistant_message, said_by_user, sampled_choice, turn_of
from tokenwire.coordinator.trajectories.events import MessageParsed, RewardGiven, SessionOpened
from tokenwire.coordinator.trajectories.graph import build_graph
from tokenwire.coordinator.trajectories.rows import rows_of


def test_a_prompt_that_begins_with_a_nodes_ids_comes_after_it() -> None:
    """Whether it was stored as what it adds, or whole by a process that did not know the node."""
    graph = build_graph(
        [
            turn_of([1, 2], sampled_choice("a", [3]), sampled_choice("b", [4], index=1)),
            turn_of([5], sampled_choice("c", [6]), base="a"),
            turn_of([1, 2, 4, 7], sampled_choice("d", [8])),
            turn_of([1, 2, 4], sampled_choice("e", [8])),
        ]
    )

    parents = {node.id: None if node.parent is None else node.parent.id for node in graph.nodes.values()}
    assert parents == {"a": None, "b": None, "c": "a", "d": "b", "e": "b"}
    assert graph.nodes["c"].all_prompt_ids() == array("I", [1, 2, 3, 5])
    assert graph.nodes["d"].prompt_ids == array("I", [7])
    assert graph.nodes["e"].prompt_ids == array("I")
    assert [node.id for node in graph.leaves()] == ["c", "d", "e"]


def test_a_turn_comes_after_that_of_another_process() -> None:
    """Each process refers to the longest one of its own, and the graph knows them all."""
    graph = build_graph(
        [
            turn_of([1], sampled_choice("a", [2])),
            turn_of([1, 2, 3], sampled_choice("b", [4])),
            turn_of([3, 4, 5], sampled_choice("c", [6]), base="a"),
            turn_of([3, 4, 5, 6, 7], sampled_choice("d", [8]), base="a"),
            turn_of([3, 5], sampled_choice("e", [6]), base="a"),
        ]
    )

    parents = {node.id: node.parent and (node.parent.id, [*node.prompt_ids]) for node in graph.nodes.values()}
    assert parents == {"a": None, "b": ("a", [3]), "c": ("b", [5]), "d": ("c", [7]), "e": ("a", [3, 5])}
    assert [node.id for node in graph.leaves()] == ["d", "e"]


def test_a_prompt_that_was_rendered_anew_comes_after_its_messages() -> None:
    """The longest conversation that it goes on after; one that was edited begins a line of its own."""
    first = [said_by_user("one")]
    second = [*first, assistant_message("two"), said_by_user("three")]
    graph = build_graph(
        [
            turn_of([1], sampled_choice("a", [2]), messages=first),
            turn_of([9], sampled_choice("b", [2]), messages=second[1:], message_base="a", message_start=1),
            turn_of([8], sampled_choice("c", [2]), messages=[*second, assistant_message("x"), said_by_user("y")]),
            turn_of([7], sampled_choice("d", [2]), messages=[said_by_user("other"), *second[1:]]),
            turn_of([6], sampled_choice("e", [2]), messages=[*first, said_by_user("no reply")]),
        ]
    )

    links = {node.id: (node.parent and node.parent.id, node.link) for node in graph.nodes.values()}
    assert links == {
        "a": (None, None),
        "b": ("a", "messages"),
        "c": ("b", "messages"),
        "d": (None, None),
        "e": (None, None),
    }
    conversation = graph.nodes["b"].conversation
    assert conversation is not None
    assert conversation.after(0) == second
    assert graph.nodes["b"].message_start == 1
    assert graph.nodes["b"].all_prompt_ids() == array("I", [9])
    assert graph.nodes["a"].is_leaf


def test_a_turn_is_not_held_against_each_node() -> None:
    """Of 200 nodes of one prompt and 200 others that continue none of them: 40,000 comparisons took seconds."""
    compared = 0

    class Message(dict[str, str]):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return super().__eq__(other)

        __hash__ = None

    first = [Message(said_by_user("one"))]
    turns = [turn_of([1], sampled_choice(f"a{i}", [2]), messages=first) for i in range(200)]
    for i in range(200):
        said = [Message(said_by_user(f"other {i}")), assistant_message("two"), said_by_user("three")]
        turns.append(turn_of([3 + i], sampled_choice(f"b{i}", [2]), messages=said))

    graph = build_graph(turns)

    assert all(node.parent is None for node in graph.nodes.values())
    assert compared < 1000


def test_only_nodes_of_one_model_and_adapter_are_linked() -> None:
    """A conversation that another one goes on with begins a line of its own, and the first may go on after that."""
    said = [said_by_user("one"), assistant_message("two"), said_by_user("three")]
    more = [*said, assistant_message("four"), said_by_user("five")]
    graph = build_graph(
        [
            turn_of([1], sampled_choice("a", [2]), messages=said[:1]),
            turn_of([1, 2, 3], sampled_choice("b", [4]), messages=said, adapter="tuned"),
            turn_of([3], sampled_choice("c", [4]), messages=said, base="a", model="other"),
            turn_of([1, 2, 3, 4, 5], sampled_choice("d", [6]), messages=more),
            turn_of([5], sampled_choice("e", [6]), messages=more, base="b", adapter="tuned"),
            turn_of([9], sampled_choice("f", [6]), messages=more, model="other"),
            turn_of([1, 2, 3, 4, 5], sampled_choice("g", [6]), messages=more, adapter="tuned", adapter_id=2),
        ]
    )

    links = {node.id: (node.parent and node.parent.id, node.link) for node in graph.nodes.values()}
    assert links == {
        "a": (None, None),
        "b": (None, None),
        "c": (None, None),
        "d": ("a", "ids"),
        "e": ("b", "ids"),
        "f": ("c", "messages"),
        "g": (None, None),  # whose adapter was loaded anew
    }
    prompts = {node.id: [*node.all_prompt_ids()] for node in graph.nodes.values()}
    assert prompts["b"] == prompts["c"] == [1, 2, 3]
    assert prompts["d"] == prompts["e"] == [1, 2, 3, 4, 5]
    rows = {row.nodes[-1]: row for row in rows_of("s", graph, "path")}
    assert {end: (row.nodes, row.model, row.adapter) for end, row in rows.items()} == {
        "c": (["c"], "other", None),
        "d": (["a", "d"], "m", None),
        "e": (["b", "e"], "m", "tuned"),
        "f": (["f"], "other", None),
        "g": (["g"], "m", "tuned"),
    }


def test_tools_are_those_of_the_turn_that_had_them_first() -> None:
    """Where they are stored as equal ones."""
    tools = [{"type": "function"}]
    graph = build_graph(
        [
            turn_of([1], sampled_choice("a", [2]), messages=[said_by_user("x")], tools=tools),
            turn_of(
                [3], sampled_choice("b", [4]), base="a", messages=[], message_base="a", message_start=1, same_tools=True
            ),
            turn_of([5], sampled_choice("c", [6]), base="a", messages=[], message_base="a", message_start=1),
        ]
    )

    assert graph.nodes["b"].tools == tools
    assert graph.nodes["c"].tools is None


def test_what_refers_to_a_node_that_was_not_stored_is_counted() -> None:
    """With all that refers to it in turn."""
    graph = build_graph(
        [
            turn_of([1], sampled_choice("b", [2]), sampled_choice("c", [3]), base="a"),
            turn_of([1], sampled_choice("d", [2]), base="b"),
            turn_of([1], sampled_choice("e", [2])),
        ]
    )

    assert (list(graph.nodes), graph.lost) == (["e"], 3)


def test_later_messages_rewards_and_metadata_replace_earlier_ones() -> None:
    """By their names; a reward for a node that is not there is none."""
    graph = build_graph(
        [
            SessionOpened(5.0, {"task": 1, "seed": 2}),
            turn_of([1], sampled_choice("a", [2], message=None), started=4.0),
            MessageParsed("a", assistant_message("parsed")),
            RewardGiven(6.0, "reward", 1.0),
            RewardGiven(6.0, "reward", 0.0),
            RewardGiven(6.0, "style", 0.5, "a"),
            RewardGiven(6.0, "style", 0.5, "x"),
            SessionOpened(7.0, {"task": 3}),
        ]
    )

    assert graph.metadata == {"task": 3, "seed": 2}
    assert graph.rewards == {"reward": 0.0}
    assert graph.nodes["a"].rewards == {"style": 0.5}
    assert graph.nodes["a"].message == assistant_message("parsed")
    assert graph.created_at == 4.0
