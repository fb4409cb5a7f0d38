"""A client that reads a stream while a test does something else."""

import threading

import httpx

from tests.conformance.parity.request import Request


class Reader(threading.Thread):
    """Reads a stream in the background; the with block ends when the stream has."""

    def __init__(self, url: str, case: Request) -> None:
        super().__init__()
        self._request = (url + case.path, case.body)
        self.text = ""

    def __enter__(self) -> "Reader":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.join()

    def run(self) -> None:
        """Read everything."""
        url, body = self._request
        self.text = httpx.post(url, json=body, timeout=120).text
