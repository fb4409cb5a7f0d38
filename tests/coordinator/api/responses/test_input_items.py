"""The input items of stored responses."""

from typing import Any

import pytest
from starlette.datastructures import QueryParams

from tokenwire.coordinator.api.responses.input_items import page_of, shown_item, with_ids
from tokenwire.coordinator.api.responses.items import messages_of
from tokenwire.errors import InvalidRequest

ITEMS = [{"id": f"msg_{i}", "type": "message", "role": "user", "content": str(i)} for i in range(30)]


def page_ids(query: str) -> list[str]:
    """Return the ids of a page."""
    return [item["id"] for item in page_of(ITEMS, QueryParams(query))["data"]]


def test_items_without_an_id_get_one() -> None:
    """Their messages stay the same, so that a continued conversation has the same prompt."""
    given: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi."},
        {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "1", "id": "fc_1"},
        {"type": "function_call_output", "call_id": "1", "output": "x"},
    ]
    items = with_ids(given)

    assert [item["id"].partition("_")[0] for item in items] == ["msg", "fc", "fco"]
    assert items[1]["id"] == "fc_1"
    assert messages_of(None, items) == messages_of(None, given)
    assert "id" not in given[0]
    assert messages_of(None, with_ids("Hi.")) == messages_of(None, "Hi.")


def test_a_listed_message_has_parts_and_a_status() -> None:
    """As OpenAI's; others are listed as they are."""
    reply = {"id": "msg_1", "type": "message", "role": "assistant", "content": "Yes?", "status": "incomplete"}

    assert shown_item(ITEMS[0])["content"] == [{"type": "input_text", "text": "0"}]
    assert shown_item(ITEMS[0])["status"] == "completed"
    assert shown_item(reply)["content"][0]["type"] == "output_text"
    assert shown_item(reply)["status"] == "incomplete"
    for kind in ("reasoning", "compaction"):
        assert shown_item({"type": kind, "id": "x"}) == {"type": kind, "id": "x"}


def test_pages_follow_each_other() -> None:
    """The newest item first, or the oldest."""
    assert page_ids("")[0] == "msg_29"
    assert len(page_ids("")) == 20
    assert page_ids("after=msg_10&limit=100") == [f"msg_{i}" for i in range(9, -1, -1)]
    assert page_ids("order=asc&after=msg_3&limit=2") == ["msg_4", "msg_5"]
    assert page_ids("order=asc&before=msg_2") == ["msg_0", "msg_1"]
    last = page_of(ITEMS, QueryParams("order=asc&after=msg_27"))
    assert (last["first_id"], last["last_id"], last["has_more"]) == ("msg_28", "msg_29", False)
    assert page_of(ITEMS, QueryParams("limit=29"))["has_more"]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=x", "limit"),
        ("order=up", "order"),
        ("after=msg_x", "after"),
        ("before=msg_x", "before"),
        ("include=all", "include"),
        ("include[]=all", "include"),
    ],
)
def test_invalid_parameters_are_named(query: str, param: str) -> None:
    """By the error."""
    with pytest.raises(InvalidRequest) as raised:
        page_ids(query)
    assert raised.value.param == param
