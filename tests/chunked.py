"""Decodes the chunked bodies of HTTP/1.1 for clients on bare sockets."""


def unchunk(body: bytes) -> tuple[bytes, bool]:
    """Return the content of a chunked body as far as it came, and whether it is complete with nothing after it."""
    parts: list[bytes] = []
    start = 0
    while (end := body.find(b"\r\n", start)) >= 0:
        size = int(body[start:end], 16)
        if not size:
            return b"".join(parts), body[end:] == b"\r\n\r\n"
        parts.append(body[end + 2 : end + 2 + size])
        start = end + 2 + size + 2
        if body[start - 2 : start] != b"\r\n":
            break
    return b"".join(parts), False
