"""Tokens of coordinators: what they may be, how they match, how they are rotated."""

import grpc
import pytest

from tests.tokenwire.peer_auth.site import METHODS, Site, authenticating_worker, call, works
from tokenwire.errors import InvalidRequest
from tokenwire.peer_auth.peer_tokens import PeerTokens
from tokenwire.peer_auth.settings import PeerAuthClientSettings


@pytest.mark.parametrize("token", ["two words", "tokén", "bell\a"])
def test_a_token_must_fit_in_a_header(token: str) -> None:
    """Otherwise every call would fail with an unhelpful error. The message does not have the token."""
    with pytest.raises(InvalidRequest, match="printable") as refused:
        PeerTokens(token, "a test")
    assert token not in refused.value.message


def test_all_tokens_match_and_the_first_is_sent() -> None:
    """This permits rotation."""
    tokens = PeerTokens("new\nold\n\n", "a test")

    assert tokens.authorization == "Bearer new"
    assert tokens.match("Bearer new")
    assert tokens.match("bearer old")
    assert not any(map(tokens.match, ("", "Bearer", "Bearer ", "Bearer ne", "Basic new", "Bearer nëw")))


async def test_tokens_are_rotated_without_an_interruption(site: Site) -> None:
    """Workers accept both, then coordinators send the new one, then workers drop the old one."""
    (mine := site.folder / "mine").write_text("right\n")
    coordinator = PeerAuthClientSettings(token_file=mine)
    async with authenticating_worker(site.token) as worker:
        site.tokens.write_text("right\nnext\n")
        await works(worker.address, coordinator)
        mine.write_text("next\nright\n")
        await works(worker.address, coordinator)
        site.tokens.write_text("next\n")
        await works(worker.address, coordinator)
        assert (
            await call(worker.address, METHODS[0], PeerAuthClientSettings(token="right"))
            is grpc.StatusCode.UNAUTHENTICATED
        )
