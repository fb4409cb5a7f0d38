"""A headless Chromium, controlled by the DevTools protocol over a pipe: no driver, no port."""

import base64
import contextlib
import fcntl
import json
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.page.installation import find_chromium

_READ_FD, _WRITE_FD = 3, 4
"""Where Chromium reads commands and writes events."""
_FLAGS = (
    "--headless",
    "--hide-scrollbars",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)


_KEY_CODES = {"Tab": 9, "Enter": 13, " ": 32, "ArrowLeft": 37, "ArrowRight": 39}


class Page:
    """One tab, which records its errors and requests."""

    def __init__(self, commands: int, events: int) -> None:
        self._commands = commands
        self._events = events
        self._unread = b""
        self._count = 0
        self._session = ""
        self.problems: list[str] = []
        """What the console shows as errors or warnings, and scripts' exceptions."""
        self.requested: list[str] = []
        """Requested URLs."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; return its result."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def open(self, url: str) -> None:
        """Load a page, and reset the records."""
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression, awaited if it is a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str, timeout_s: float = 20.0) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.evaluate(f"document.readyState !== 'loading' && !!({expression})"):
                return
            time.sleep(0.02)
        raise AssertionError(f"not true: {expression}\n{self.text('body')}")

    def text(self, selector: str) -> str:
        """Return the visible text of an element."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def fill(self, selector: str, value: str) -> None:
        """Set the value of a field."""
        self.evaluate(f"void (document.querySelector({json.dumps(selector)}).value = {json.dumps(value)})")

    def click(self, selector: str) -> None:
        """Click an element."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def type_key(self, key: str) -> None:
        """Press a key in the focused element."""
        code = _KEY_CODES[key]
        for kind in ("keyDown", "keyUp"):
            text = {"Enter": "\r", " ": " "}.get(key, "") if kind == "keyDown" else ""
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        """Set the size of the viewport."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    def prefer(self, scheme: str) -> None:
        """Set the color scheme of the system: light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path: Path, quality: int = 80) -> None:
        """Write a screenshot to a WebP file."""
        shot = self.call("Page.captureScreenshot", format="webp", quality=quality)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._events], [], [], 30)
            assert ready, "Chromium does not answer"
            piece = os.read(self._events, 1 << 20)
            assert piece, "Chromium ended"
            self._unread += piece
        message, _, self._unread = self._unread.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Log.entryAdded":
                self.problems.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
            case "Runtime.exceptionThrown":
                self.problems.append(str(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning"):
                self.problems.append(str(parameters["args"]))
            case "Network.requestWillBeSent":
                self.requested.append(parameters["request"]["url"])


@contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """Run Chromium with one tab and an empty profile."""
    browser = find_chromium()
    theirs_in, commands = (_high(fd) for fd in os.pipe())
    events, theirs_out = (_high(fd) for fd in os.pipe())
    log = os.open(folder / "chromium.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    pid = os.posix_spawn(
        browser.path,
        [browser.path, *_FLAGS, f"--user-data-dir={folder / 'profile'}"],
        browser.environment,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, theirs_in, _READ_FD),
            (os.POSIX_SPAWN_DUP2, theirs_out, _WRITE_FD),
            (os.POSIX_SPAWN_DUP2, log, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
        ],
        setpgroup=0,
    )
    for fd in (theirs_in, theirs_out, log):
        os.close(fd)
    try:
        yield Page(commands, events)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(commands)
        os.close(events)


def _high(fd: int) -> int:
    """Move a descriptor away from the numbers that the child uses."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 16)
    os.close(fd)
    return moved
