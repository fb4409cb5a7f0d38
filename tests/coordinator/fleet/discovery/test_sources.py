"""Workers from lists, files and names, and all of them together."""

import asyncio
import os
import socket
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.coordinator.fleet.discovery.followed import Told, followed
from tests.workers import until
from tokenwire.coordinator.fleet.discovery.dns import DnsName
from tokenwire.coordinator.fleet.discovery.file import FileList
from tokenwire.coordinator.fleet.discovery.finder import WorkerFinder
from tokenwire.coordinator.fleet.discovery.kubernetes import KubernetesService
from tokenwire.coordinator.fleet.discovery.parse import check_source, open_source
from tokenwire.coordinator.fleet.discovery.source import Discovery, StaticList, Update
from tokenwire.errors import InvalidRequest

SOON = 0.01


def nobody(address: str) -> bool:
    """Serve nowhere."""
    return False


async def test_a_file_is_read_again(tmp_path: Path) -> None:
    """Blank lines and comments do not count, nor does a bad line; a changed file changes the list."""
    path = tmp_path / "workers"
    path.write_text("# the fleet\n\none:1  # the first\nhttp://two:2\nnonsense\nunix:/run/three\n")
    async with followed(FileList(path, SOON)) as told:
        await told.become("one:1", "http://two:2", "unix:/run/three")
        path.write_text("one:1\n")
        await told.become("one:1")
        path.write_text("")
        await told.become()


async def test_a_bad_line_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log says which line and why."""
    path = tmp_path / "workers"
    path.write_text("one:1\ntwo\n")
    async with followed(FileList(path, SOON)) as told:
        await told.become("one:1")

    assert "line 2: 'two' is not a worker address" in caplog.text


async def test_a_mounted_file_may_be_swapped(tmp_path: Path) -> None:
    """Kubernetes swaps a link to the folder of a ConfigMap."""
    for name, text in (("old", "one:1"), ("new", "two:2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "workers").write_text(text)
    data, path = tmp_path / "data", tmp_path / "data" / "workers"
    data.symlink_to("old")
    async with followed(FileList(path, SOON)) as told:
        await told.become("one:1")
        (tmp_path / "next").symlink_to("new")
        os.replace(tmp_path / "next", data)
        await told.become("two:2")


async def test_a_file_that_is_gone_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The last list holds, the log says so once, and the file counts again when it is back."""
    path = tmp_path / "workers"
    async with followed(FileList(path, SOON)) as told:
        await until(lambda: "cannot read workers" in caplog.text)
        path.write_text("one:1")
        await told.become("one:1")
        path.unlink()
        await until(lambda: caplog.text.count("cannot read workers") == 2)
        await asyncio.sleep(5 * SOON)
        path.write_text("two:2")
        await told.become("two:2")

    assert told.lists == [["one:1"], ["two:2"]]
    assert caplog.text.count("cannot read workers") == 2


class Resolver:
    """Stands for the loop's own way of asking the DNS."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hosts: list[str] | None = []
        self.asked = 0
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self.getaddrinfo)

    async def getaddrinfo(self, host: str, port: int, type: int) -> list[object]:
        """Answer with the hosts, or that there is none."""
        self.asked += 1
        if self.hosts is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(0, type, 6, "", (each, port)) for each in self.hosts]

    async def answer_again(self) -> None:
        """Wait until it was asked after now."""
        asked = self.asked
        await until(lambda: self.asked > asked + 1)


async def test_a_name_stands_for_all_of_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both families count; a changed answer changes the list; a scheme goes in front of each."""
    resolver = Resolver(monkeypatch)
    resolver.hosts = ["10.0.0.2", "10.0.0.1", "fd00::1"]
    async with followed(DnsName("", "workers", 50051, nobody, SOON)) as told:
        await told.become("10.0.0.1:50051", "10.0.0.2:50051", "[fd00::1]:50051")
        resolver.hosts = ["10.0.0.2"]
        await told.become("10.0.0.2:50051")
    async with followed(DnsName("http://", "workers", 8000, nobody, SOON)) as told:
        await told.become("http://10.0.0.2:8000")


async def test_a_name_that_cannot_be_resolved_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The last addresses hold, and the log says so once."""
    resolver = Resolver(monkeypatch)
    resolver.hosts = ["10.0.0.1"]
    async with followed(DnsName("", "workers", 1, nobody, SOON)) as told:
        await told.become("10.0.0.1:1")
        resolver.hosts = None
        await resolver.answer_again()
        await resolver.answer_again()

    assert told.lists == [["10.0.0.1:1"]]
    assert caplog.text.count("cannot resolve workers") == 1


async def test_a_worker_that_serves_outlives_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that is missing in an answer stays while its worker takes requests."""
    resolver = Resolver(monkeypatch)
    resolver.hosts = ["10.0.0.1", "10.0.0.2"]
    serving = {"10.0.0.1:1"}
    async with followed(DnsName("", "workers", 1, serving.__contains__, SOON)) as told:
        await told.become("10.0.0.1:1", "10.0.0.2:1")
        resolver.hosts = []
        await told.become("10.0.0.1:1")
        await resolver.answer_again()
        serving.clear()
        await told.become()


class Broken:
    """Fails once it has told what it knows."""

    async def run(self, update: Update) -> None:
        """Fail."""
        update(["broken:1"])
        raise ValueError("something nobody thought of")


async def test_sources_add_up(caplog: pytest.LogCaptureFixture) -> None:
    """What any source knows counts, once, in the order of the sources; one that breaks takes nothing along."""
    told = Told()
    named: dict[str, Discovery] = {
        "a": StaticList("one:1", "two:2"),
        "b": Broken(),
        "c": StaticList("two:2", "three:3"),
        "d": StaticList(),
    }
    finder = WorkerFinder(named, told.update)
    finder.start()
    await told.become("one:1", "two:2", "broken:1", "three:3")
    await finder.stop()

    assert "discovery of workers in b failed" in caplog.text
    assert "d has no workers" in caplog.text


@pytest.mark.parametrize(
    "value", ["host", "host:", ":1", "host:70000", "host:1/path", "unix:", "http://host", "file:", "dns:host",
              "dns:http://host", "k8s:Service:1", "k8s:a/b/c:1", "k8s:service", "a b:1"],
)  # fmt: skip
def test_bad_values_are_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the value, or what was expected."""
    monkeypatch.setenv("TOKENWIRE_KUBERNETES_API", "http://127.0.0.1:1")
    with pytest.raises(InvalidRequest, match=r"not a worker address|was expected|needs a"):
        check_source(value)


def test_values_become_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each prefix has its source; everything else is an address."""
    monkeypatch.setenv("TOKENWIRE_KUBERNETES_API", "http://127.0.0.1:1")
    monkeypatch.setenv("TOKENWIRE_KUBERNETES_ACCOUNT", str(tmp_path))
    (tmp_path / "namespace").write_text("here\n")
    kinds: dict[str, Collection[str]] = {
        StaticList.__name__: ["host:1", "[::1]:1", "unix:/a b", "https://h-1.example:1/", "10.0.0.1:65535"],
        FileList.__name__: ["file:relative/path"],
        DnsName.__name__: ["dns:workers.llm.svc:50051", "dns:http://workers:8000"],
        KubernetesService.__name__: ["k8s:llm/workers:grpc", "k8s:workers:50051", "k8s:http://llm/vllm:8000"],
    }
    for kind, values in kinds.items():
        assert {type(open_source(value, nobody)).__name__ for value in values} == {kind}
