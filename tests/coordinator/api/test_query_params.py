"""Invalid query parameters are named."""

import pytest
from starlette.datastructures import QueryParams

from tokenwire.coordinator.api.query_params import check_known, flag_of, number_of, one_of, time_of
from tokenwire.errors import InvalidRequest


def test_parameters_that_a_route_lacks_are_named() -> None:
    """With those that it has, since a mistyped one would do nothing."""
    check_known(QueryParams("limit=5&limit=6"), "limit", "offset")
    for known, takes in ((("limit", "offset"), "takes limit, offset"), ((), "takes none")):
        with pytest.raises(InvalidRequest, match=f"'after' is not a parameter of this route, which {takes}") as raised:
            check_known(QueryParams("after=x"), *known)
        assert raised.value.param == "after"


def test_parameters_are_checked() -> None:
    """By what they are."""
    query = QueryParams("limit=5&since=1.5&by=node")
    assert (number_of(query, "limit"), time_of(query, "since"), one_of(query, "by", ("path", "node"))) == (
        5,
        1.5,
        "node",
    )
    assert (number_of(query, "offset"), time_of(query, "until"), one_of(query, "format", ("jsonl",))) == (
        None,
        None,
        "jsonl",
    )
    for value in ("0", "-1", "1.5", "x", "9" * 20, "11"):
        with pytest.raises(InvalidRequest, match="`limit` must be a whole number from 1 on and at most 10"):
            number_of(QueryParams({"limit": value}), "limit", 10)
    for value in ("x", "nan", "inf"):
        with pytest.raises(InvalidRequest, match="`since`"):
            time_of(QueryParams({"since": value}), "since")
    with pytest.raises(InvalidRequest, match="`by` must be one of path, node"):
        one_of(QueryParams("by=tree"), "by", ("path", "node"))
    assert number_of(QueryParams("offset=0"), "offset", least=0) == 0
    with pytest.raises(InvalidRequest, match="`offset` must be a whole number from 0 on"):
        number_of(QueryParams("offset=-1"), "offset", least=0)
    assert [flag_of(QueryParams(given), "stream") for given in ("stream=1", "stream=true", "stream=0", "")] == [
        *(True, True, False, False)
    ]
    with pytest.raises(InvalidRequest, match="`stream` must be true or false"):
        flag_of(QueryParams("stream=yes"), "stream")
