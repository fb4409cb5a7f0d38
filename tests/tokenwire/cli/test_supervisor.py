"""The supervisor in its own process, with small Python programs as parts."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

# What parts run as `python -m tokenwire`: their argument, as Python.
_FAKE_MAIN = """
import os, signal, sys, time

def emit(text):
    os.write(1, (text + "\\n").encode())

def stay(name):
    def stop(number, frame):
        emit(f"{name} got {signal.Signals(number).name}")
        sys.exit(0)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    emit(f"{name} is up")
    while True:
        time.sleep(0.1)

def ignore(name, then=lambda: None):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    emit(f"{name} is up")
    then()
    while True:
        time.sleep(0.1)

def start_another(name):
    up, child = os.pipe()
    if not os.fork():
        ignore(f"what {name} has started", then=lambda: os.write(child, b"!"))
    os.read(up, 1)

def end_when_signalled(name, code):
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(code))
    emit(f"{name} is {os.getpid()}")
    while True:
        time.sleep(0.1)

def option(name):
    return int(sys.argv[sys.argv.index(name) + 1])

exec(sys.argv[1])
"""


class Supervised:
    """A running supervisor, seen by what it and its parts print."""

    def __init__(self, popen: "subprocess.Popen[str]") -> None:
        self.popen = popen

    def read(self, *starts: str) -> list[str]:
        """Read lines until each of these is the start of one; return the lines."""
        assert self.popen.stdout is not None
        lines: list[str] = []
        while not all(any(line.startswith(start) for line in lines) for start in starts):
            line = self.popen.stdout.readline()
            assert line, f"ended after {lines}"
            lines.append(line.rstrip())
        return lines

    def rest(self) -> list[str]:
        """Read everything until the supervisor and all parts have ended."""
        assert self.popen.stdout is not None
        return self.popen.stdout.read().splitlines()

    def exit_code(self) -> int:
        """Wait for the supervisor's end."""
        return self.popen.wait(20)


Supervise = Callable[[str], AbstractContextManager[Supervised]]


@pytest.fixture
def supervise(tmp_path: Path) -> Supervise:
    """Runs a supervisor of parts, given as the elements of a list."""
    package = tmp_path / "tokenwire"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(_FAKE_MAIN)

    @contextmanager
    def run(code: str) -> Iterator[Supervised]:
        script = f"""
            import os, sys
            from tokenwire.process.sockets import PublicPort
            from tokenwire.process.startup import Startup
            from tokenwire.cli.supervisor import ChildProcess, Supervisor, supervise_coordinators
            # From here on `python -m tokenwire` is the fake.
            os.environ.update(PYTHONPATH={str(tmp_path)!r}, PYTHONSAFEPATH="1")
        """
        program = textwrap.dedent(script) + textwrap.dedent(code)
        with subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as popen:
            try:
                yield Supervised(popen)
            finally:
                popen.kill()

    return run


pytestmark = pytest.mark.timeout(30)


@pytest.mark.parametrize(("ends_with", "code"), [(3, 3), (0, 1)])
def test_when_a_part_ends_all_are_stopped(supervise: Supervise, ends_with: int, code: int) -> None:
    """The others get SIGTERM, the log names the part, and its exit code is the supervisor's, but never 0."""
    parts = f"""
        middle = ChildProcess("two", ["end_when_signalled('two', {ends_with})"])
        first, last = ChildProcess("one", ["stay('one')"]), ChildProcess("three", ["stay('three')"])
        sys.exit(Supervisor([first, middle, last]).run())
    """
    with supervise(parts) as supervised:
        lines = supervised.read("one is up", "three is up", "two is ")

        os.kill(next(int(line[7:]) for line in lines if line.startswith("two is ")), signal.SIGUSR1)

        stopping = f"two exited with code {ends_with}: stopping all processes"
        assert supervised.rest() == [stopping, "three got SIGTERM", "one got SIGTERM"]
        assert supervised.exit_code() == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_parts_in_the_opposite_order(supervise: Supervise, number: signal.Signals) -> None:
    """SIGTERM or Ctrl-C, to the whole process group, reaches the parts one by one as SIGTERM; then the code is 0."""
    parts = """
        parts = [ChildProcess(name, [f"stay({name!r})"]) for name in ("one", "two", "three")]
        sys.exit(Supervisor(parts).run())
    """
    with supervise(parts) as supervised:
        supervised.read("one is up", "two is up", "three is up")

        os.killpg(supervised.popen.pid, number)

        assert supervised.rest() == ["tokenwire: stopping", "three got SIGTERM", "two got SIGTERM", "one got SIGTERM"]
        assert supervised.exit_code() == 0


def test_a_part_that_ignores_sigterm_is_killed(supervise: Supervise) -> None:
    """After its timeout it is killed and logged, and the others are stopped as usual."""
    parts = """
        stubborn = ChildProcess("stubborn", ["ignore('stubborn')"], stop_timeout_s=0.2)
        sys.exit(Supervisor([ChildProcess("good", ["stay('good')"]), stubborn]).run())
    """
    with supervise(parts) as supervised:
        supervised.read("good is up", "stubborn is up")

        supervised.popen.terminate()

        assert supervised.rest()[1:] == ["stubborn does not stop: killing it", "good got SIGTERM"]
        assert supervised.exit_code() == 0


def test_coordinators_have_their_own_stop_timeout(supervise: Supervise) -> None:
    """A drain may take longer than the default timeout."""
    code = """
        arguments = ["ignore('coordinator')"]
        sys.exit(supervise_coordinators(arguments, PublicPort("127.0.0.1", 0), Startup(1), stop_timeout_s=0.2))
    """
    with supervise(code) as supervised:
        supervised.read("coordinator is up")

        supervised.popen.terminate()

        assert supervised.rest()[-1] == "coordinator does not stop: killing it"


def test_a_second_signal_does_not_wait(supervise: Supervise) -> None:
    """It kills the parts that are still running."""
    parts = """
        parts = [ChildProcess("stubborn", ["ignore('stubborn')"], stop_timeout_s=1000)]
        sys.exit(Supervisor(parts).run())
    """
    with supervise(parts) as supervised:
        supervised.read("stubborn is up")

        supervised.popen.terminate()
        supervised.read("tokenwire: stopping")
        supervised.popen.terminate()

        assert supervised.rest()[-1] == "stubborn does not stop: killing it"
        assert supervised.exit_code() == 0


@pytest.mark.parametrize("then", ["os._exit(7)", "stay('one')", "ignore('one')"])
def test_what_a_part_has_started_ends_with_it(supervise: Supervise, then: str) -> None:
    """However the part ends: an engine that stays would keep the memory of its GPU."""
    parts = f"""
        parts = [ChildProcess("one", ["start_another('one')\\n" + {then!r}], stop_timeout_s=1000)]
        sys.exit(Supervisor(parts).run())
    """
    with supervise(parts) as supervised:
        supervised.read("what one has started is up")

        if "exit" not in then:
            supervised.popen.terminate()
        if "ignore" in then:
            supervised.read("tokenwire: stopping")
            supervised.popen.terminate()

        assert supervised.exit_code() == (7 if "exit" in then else 0)
        supervised.rest()


def test_parts_do_not_outlive_a_killed_supervisor(supervise: Supervise) -> None:
    """kill -9 of the supervisor still stops its parts."""
    parts = """
        sys.exit(Supervisor([ChildProcess("one", ["stay('one')"])]).run())
    """
    with supervise(parts) as supervised:
        supervised.read("one is up")

        supervised.popen.kill()

        assert supervised.rest() == ["one got SIGTERM"]


def test_a_part_has_its_own_environment_and_descriptors(supervise: Supervise) -> None:
    """A part has the supervisor's environment and its own additions, and only its own descriptors."""
    parts = """
        given, hidden = os.open("/dev/null", os.O_RDONLY), os.open("/dev/null", os.O_RDONLY)
        os.set_inheritable(hidden, True)
        code = "emit(os.environ['SHARED'] + os.environ.get('OWN', '-')); "
        code += f"emit(str([os.path.exists('/proc/self/fd/%d' % fd) for fd in ({given}, {hidden})])); stay('part')"
        os.environ["SHARED"] = "shared "
        Supervisor([ChildProcess("one", [code], inherit=[given], environment={"OWN": "own"})]).run()
    """
    with supervise(parts) as supervised:
        supervised.read("shared own", "[True, False]", "part is up")


def test_the_service_is_announced_when_every_coordinator_is_ready(supervise: Supervise) -> None:
    """Coordinators get a socket each, on one port, and a pipe to report to; parts before them are started first."""
    code = """
        coordinator = '''
        import socket
        port = socket.socket(fileno=option("--listen-fd")).getsockname()[1]
        def on_signal(*_):
            emit("signalled")
            os.write(option("--ready-fd"), b"/generate" + bytes([10]))
        signal.signal(signal.SIGUSR1, on_signal)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(emit("coordinator got SIGTERM")))
        emit(f"coordinator is on {port} {os.getpid()}")
        while True:
            time.sleep(0.1)
        '''
        import textwrap
        before = [ChildProcess("worker", ["stay('worker')"])]
        sys.exit(supervise_coordinators([textwrap.dedent(coordinator)], PublicPort("127.0.0.1", 0), Startup(2), before))
    """
    with supervise(code) as supervised:
        lines = supervised.read("worker is up", "coordinator is on ")
        while len(found := [line.split()[-2:] for line in lines if line.startswith("coordinator")]) < 2:
            lines += supervised.read("")
        (one, first), (other, second) = found
        assert one == other

        os.kill(int(first), signal.SIGUSR1)
        assert supervised.read("signalled") == ["signalled"]
        os.kill(int(second), signal.SIGUSR1)
        assert "signalled" in supervised.read(f"tokenwire is ready: http://127.0.0.1:{one}"), "announced too early"
        supervised.popen.terminate()

        assert supervised.rest()[-3:] == ["coordinator got SIGTERM", "coordinator got SIGTERM", "worker got SIGTERM"]
        assert supervised.exit_code() == 0
