"""Arguments for every option of a command, and what a command receives of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenwire.cli.click_options import Given, options_command
from tokenwire.cli.coordinator import COORDINATOR_OPTIONS, CoordinatorOptions
from tokenwire.cli.worker import WORKER_OPTIONS, WorkerOptions
from tokenwire.options import (
    Declared,
)

HALVES = {"coordinator": (CoordinatorOptions, COORDINATOR_OPTIONS), "worker": (WorkerOptions, WORKER_OPTIONS)}


TEXTS = {
    "--worker": "one:1",
    "--listen": "unix:/socket",
    "--health-listen": "one:2",
    "--metrics-listen": "one:3",
    "--allowed-media-network": "10.0.0.0/8",
    "--forwarded-allow-ips": "10.0.0.0/8",
    "--history-store": "redis://one",
    "--responses-store": "redis://one",
    "--limits-store": "redis://one",
    "--chat-template": "{{ messages }}",
    "--default-chat-template-kwargs": '{"a": 1}',
    "--sim-fault": "crash@tokens=5",
    "--revision-share": "3fa9c1d07b=10",
}


FILES = {"--sim-replies": '[{"prompt": "a", "reply": "b"}]'}
"""What the files of options contain, if not a list of numbers."""

NUMBERS = {"--peer-server-name": "another", "--ssl-cert-reqs": 2, "--sim-eos-rate": 0.5}


def parse(options: Mapping[str, Declared], given: Sequence[str]) -> Given:
    """Return what a command with these options receives."""
    seen: list[Given] = []
    options_command("Take options.", options)(seen.append).main([*given], "tokenwire", standalone_mode=False)
    return seen[0]


def sample(each: Declared, folder: Path) -> str:
    """Return a value other than the default."""
    name = each.option.name
    if each.option.path.endswith("directory"):
        return str(folder)
    if each.option.path:
        (path := folder / f"file{name}").write_text(FILES.get(name, "[1, 2]"))
        return str(path)
    if each.choices:
        return next(choice for choice in each.choices if choice != each.default)
    if each.kind in (int, float):
        default = each.default if isinstance(each.default, int | float) else 40
        return str(NUMBERS.get(name, default + 1))
    return str(NUMBERS.get(name) or TEXTS.get(name, "something"))


def everything(options: Mapping[str, Declared], folder: Path) -> list[str]:
    """Return arguments that set every option."""
    given: list[str] = []
    for each in options.values():
        if each.is_switch:
            given.append(each.option.flag.rpartition("/")[2])
        elif each.option.is_flag:
            given += [each.option.name, sample(each, folder)]
        elif each.option.flag:
            given.append("model")
    return given
