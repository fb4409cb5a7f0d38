"""When a rejected client may come back: `Retry-After`, which each 429 and 503 has, and nothing else."""

import re
from collections.abc import Mapping

_HEADER = b"retry-after"
_LONGEST_S = 60
"""Of a queue. What a key may use within a minute may take longer, if it is overdrawn: its account judges that."""
_LIMIT_OF_KEY = "Rate limit reached for"
_SAID = re.compile(r"Try again in (\d+) s\.")


def seconds_of(headers: Mapping[bytes, bytes]) -> int | None:
    """Return the seconds to wait; None if they are not there, or not whole seconds of which there is at least one."""
    value = headers.get(_HEADER, b"")
    return int(value) if value.isdigit() and int(value) else None


def retry_problem(status: int, headers: Mapping[bytes, bytes], message: str) -> str:
    """Return what is wrong with the head of an error; empty if nothing."""
    if status not in (429, 503):
        return f"a {status} with Retry-After" if _HEADER in headers else ""
    seconds = seconds_of(headers)
    if seconds is None:
        return f"a {status} with Retry-After {headers.get(_HEADER)!r}"
    if seconds > _LONGEST_S and not message.startswith(_LIMIT_OF_KEY):
        return f"a {status} that says to wait for {seconds} s"
    said = _SAID.search(message)
    return "" if said is None or int(said[1]) == seconds else f"Retry-After {seconds}, and the message: {message}"
