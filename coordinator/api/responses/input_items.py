"""The items of stored responses as clients list them: with ids, page by page."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.datastructures import QueryParams

from tokenwire.coordinator.api.query_params import number_of, one_of
from tokenwire.coordinator.api.responses.request import check_includable
from tokenwire.errors import InvalidRequest

_DEFAULT_LIMIT, _MAX_LIMIT = 20, 100
_WITHOUT_STATUS = ("reasoning", "compaction")
_PREFIXES = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "function_call_output": "fco_",
    "custom_tool_call": "ctc_",
    "custom_tool_call_output": "ctco_",
    "local_shell_call": "lsh_",
    "local_shell_call_output": "lsho_",
    "compaction": "cmp_",
}


def with_ids(given: str | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a request's input as items that have ids; those that have none get one."""
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return [_with_id({"type": "message", **item}) for item in items]


def _with_id(item: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(item.get("id"), str):
        item["id"] = _PREFIXES[item["type"]] + uuid.uuid4().hex
    return item


def shown_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item as OpenAI lists it: a message's text is a list of parts, and it has a status."""
    if item["type"] != "message":
        return dict(item) if item["type"] in _WITHOUT_STATUS else {"status": "completed", **item}
    content = item["content"]
    if isinstance(content, str):
        kind = {"type": "output_text", "annotations": []} if item["role"] == "assistant" else {"type": "input_text"}
        content = [{**kind, "text": content}]
    return {"status": "completed", **item, "content": content}


def page_of(items: Sequence[Mapping[str, Any]], query: QueryParams) -> dict[str, Any]:
    """Return one page of items, which are in order of time. Raises an InvalidRequest that names the parameter."""
    limit, order = number_of(query, "limit", _MAX_LIMIT) or _DEFAULT_LIMIT, one_of(query, "order", ("desc", "asc"))
    for name in (*query.getlist("include"), *query.getlist("include[]")):
        check_includable(name)
    listed = list(items) if order == "asc" else list(reversed(items))
    start, end = _place(listed, query.get("after"), "after"), _place(listed, query.get("before"), "before")
    listed = listed[0 if start is None else start + 1 : end]
    page = [shown_item(item) for item in listed[:limit]]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(listed) > limit,
    }


def _place(items: Sequence[Mapping[str, Any]], item_id: str | None, param: str) -> int | None:
    if item_id is None:
        return None
    for place, item in enumerate(items):
        if item["id"] == item_id:
            return place
    raise InvalidRequest(f"`{param}` is {item_id[:100]!r}, which is no item of this response's input.", param=param)
