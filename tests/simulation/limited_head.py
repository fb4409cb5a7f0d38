"""The beginning of a response, as far as it is about keys and their limits."""

import json
import re

from starlette.types import Message

from tests.simulation.key_account import ADMITTED, KeyAccount, KeySpec
from tests.simulation.retry_after import seconds_of

UNAUTHORIZED = "unauthorized"
_RATE_LIMIT = re.compile(
    r"Rate limit reached for (\S+): \d+ (requests at a time|(?:requests|tokens) per minute)"
    r" \(`\w+` in --api-keys-file\)\."
    r"(?: The request may use (\d+))?"
)
_TOO_LARGE = re.compile(r"This API key has (\d+) tokens per minute, and the request may use up to (\d+)")
_HEADERS = {"requests_per_minute": b"x-ratelimit-limit-requests", "tokens_per_minute": b"x-ratelimit-limit-tokens"}


class LimitedHead:
    """What the beginning of a response says about keys and limits."""

    def __init__(self) -> None:
        self.outcome = ADMITTED
        self._status = 0
        self._headers: dict[bytes, bytes] = {}
        self._named = ""
        """The tenant that a rejection names."""
        self.asked_for = 0
        """The tokens that the request might use, if it was rejected for them."""

    def take(self, message: Message) -> bool:
        """Take a message of the response; return whether it has the body of an error."""
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], dict(message["headers"])
        elif self._status == 401:
            self.outcome = UNAUTHORIZED
        elif self._status in (400, 429):
            self._take_error(json.loads(message["body"])["error"]["message"])
        return self._status in (400, 401, 429)

    def _take_error(self, text: str) -> None:
        if found := _RATE_LIMIT.match(text):
            self._named, outcome, asked_for = found.groups()
            if asked_for is None:
                self.outcome = outcome
            self.asked_for = int(asked_for or 0)
        elif found := _TOO_LARGE.match(text):
            self.asked_for = int(found[2])

    def retry_problem(self, account: KeyAccount, now: float) -> str:
        """Return what is wrong with the time after which a key that is over its limits may come again."""
        seconds = seconds_of(self._headers)
        if not self._named or seconds is None:
            return ""
        return account.retry_problem(self.outcome, self.asked_for, seconds, now)

    def problems(self, spec: KeySpec) -> list[str]:
        """Return what the response lacks for its key."""
        found = []
        if self._named and self._named != spec["tenant"]:
            found.append(f"a rejection in the name of {self._named!r}")
        # A rejected one never got as far as the headers of its account.
        if self._status and self.outcome == ADMITTED:
            for name, header in _HEADERS.items():
                if spec[name] is not None and self._headers.get(header) != b"%d" % spec[name]:
                    found.append(f"{header!r}: {self._headers.get(header)!r}")
        return found
