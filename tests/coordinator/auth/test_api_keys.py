"""Files of API keys, and that keys never appear in messages."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tokenwire.cli.click_options import build
from tokenwire.coordinator.auth.admin_key import AdminKey
from tokenwire.coordinator.auth.api_keys import (
    VARIABLE,
    ApiKeys,
    AuthSettings,
    open_keys,
    parse_keys,
)
from tokenwire.coordinator.auth.rate_limit import Limits
from tokenwire.coordinator.auth.settings import AdminSettings
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.errors import InvalidRequest

DIGEST = sha256(b"sesame").hexdigest()


def test_keys_are_read_from_lines() -> None:
    """With or without a tenant's name, in plain text or as digests; comments are ignored."""
    keys = parse_keys(f"# ours\nsearch sesame-1  # old\nsearch sesame-2\n\nsha256:{DIGEST}\n", "file")
    ring = ApiKeys(keys)

    assert [key.tenant for key in keys] == ["search", "search", f"key-{DIGEST[:8]}"]
    for known in (b"sesame-1", b"sesame-2", b"sesame"):
        assert ring.find(known) is not None
    for unknown in (b"", b"sesame-3", b"search", DIGEST.encode(), f"sha256:{DIGEST}".encode(), b"\xff"):
        assert ring.find(unknown) is None


def test_keys_have_limits_in_json() -> None:
    """A list of objects with the permissions of each key."""
    entry = {"max_concurrent": 4, "requests_per_minute": 60, "tokens_per_minute": 1000}
    text = json.dumps([{"tenant": "batch", "sha256": DIGEST, "min_priority": 5, "models": ["a"], "weight": 3, **entry}])

    key = ApiKeys(parse_keys(text, "file")).find(b"sesame")

    assert key is not None
    assert (key.tenant, key.min_priority, key.models, key.weight) == ("batch", 5, frozenset({"a"}), 3)
    assert key.limits == Limits(4, 60, 1000)


def test_no_key_goes_before_others_unless_it_is_allowed_to() -> None:
    """Its least priority is 0, in a file of any format and in the variable."""
    keys = ApiKeys([*parse_keys('[{"key": "a"}]', "file"), *parse_keys("tenant b\nc", "file")])
    low = ApiKeys(parse_keys('[{"key": "a", "min_priority": -5}]', "file"))

    assert [key.min_priority for key in map(keys.find, (b"a", b"b", b"c")) if key is not None] == [0, 0, 0]
    assert [key.min_priority for key in [low.find(b"a")] if key is not None] == [-5]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "file holds no key"),
        ("# nothing\n", "file holds no key"),
        ("a b c", "file, line 1: expected TENANT KEY or KEY, got 3 words"),
        ("tenant sha256:beef", "file, line 1: a SHA-256 has 64"),
        ("tenant gehe\u00efm", "file, line 1: a key must be printable ASCII"),
        ("one hidden\ntwo hidden", "file holds a key twice"),
        ("[", "file is not JSON"),
        ("[" * 100_000, "file is nested too deeply"),
        ("[3]", "file, entry 1 is not an object"),
        ('[{"key": "hidden", "rpm": 3}]', "file, entry 1 has the unknown field 'rpm'"),
        ('[{"tenant": "a"}]', "file, entry 1 needs one of `key` and `sha256`"),
        ('[{"key": "hidden", "max_concurrent": 0}]', "file, entry 1: max_concurrent must be at least 1"),
        (f'[{{"key": "hidden", "requests_per_minute": 1{"0" * 400}}}]', "file, entry 1: requests_per_minute must be"),
        (f'[{{"key": "hidden", "tokens_per_minute": {2**53 + 1}}}]', "file, entry 1: tokens_per_minute must be at"),
        (f'[{{"key": "hidden", "min_priority": 1{"0" * 400}}}]', "file, entry 1: min_priority must be an integer of"),
        (f'[{{"key": "hidden", "min_priority": {-(2**63) - 1}}}]', "file, entry 1: min_priority must be an integer of"),
        ('[{"key": "hidden", "models": "a"}]', "file, entry 1: models must be of type list"),
        ('[{"key": "hidden", "weight": 0}]', "file, entry 1: weight must be from 1 to 10000"),
        ('[{"key": "hidden", "weight": 10001}]', "file, entry 1: weight must be from 1 to 10000"),
        (
            '[{"tenant": "a", "key": "hidden", "weight": 2}, {"tenant": "a", "key": "hidden2"}]',
            "file: the keys of tenant a have different weights",
        ),
        ('[{"key": 12345}]', "file, entry 1: key must be of type str"),
    ],
)
def test_errors_have_the_position_and_no_key(text: str, problem: str) -> None:
    """The message has the entry, and nothing of its contents."""
    with pytest.raises(InvalidRequest) as caught:
        parse_keys(text, "file")

    assert problem in caught.value.message
    assert "hidden" not in caught.value.message
    assert "12345" not in caught.value.message


def test_the_largest_numbers_are_accepted() -> None:
    """Priorities of 64 bits, and limits that floats represent exactly."""
    bounds = [
        {"key": "a", "min_priority": -(2**63)},
        {"key": "b", "min_priority": 2**63 - 1, "max_concurrent": 2**53, "weight": 10_000},
    ]

    lowest, highest = parse_keys(json.dumps(bounds), "file")

    assert (lowest.min_priority, highest.min_priority) == (-(2**63), 2**63 - 1)
    assert highest.limits.max_concurrent == 2**53
    assert (lowest.weight, highest.weight) == (1, 10_000)


def test_no_repr_has_a_key() -> None:
    """Neither keys nor their digests are printed."""
    settings = build(AuthSettings, {}, {VARIABLE: "sesame, other"})

    shown = f"{settings} {settings!r} {ApiKeys(settings.keys)!r} {settings.keys!r}"

    assert "sesame" not in shown
    assert DIGEST not in shown
    assert repr(bytes.fromhex(DIGEST)) not in shown


def test_keys_come_from_the_environment_and_a_file(tmp_path: Path) -> None:
    """Both are valid, and a changed file is reloaded; an invalid one keeps the old keys."""
    file = tmp_path / "keys"
    file.write_text("one first")
    keys = open_keys(build(AuthSettings, {"--api-keys-file": file}, {VARIABLE: "fixed,"}))
    assert keys is not None
    assert [keys().find(key) is not None for key in (b"fixed", b"first", b"second")] == [True, True, False]

    file.write_text("two second")
    assert [keys().find(key) is not None for key in (b"fixed", b"first", b"second")] == [True, False, True]
    for broken in ("", f'[{{"key": "third", "min_priority": 1{"0" * 400}}}]'):
        file.write_text(broken)
        assert keys().find(b"second") is not None


@pytest.mark.parametrize("environment", [{VARIABLE: ""}, {VARIABLE: " , "}])
def test_an_empty_variable_is_an_error(environment: dict[str, str]) -> None:
    """A set variable means that keys are required: the server does not start without any."""
    with pytest.raises(InvalidRequest, match="holds no key"):
        build(AuthSettings, {}, environment)


def test_without_keys_none_are_required() -> None:
    """The default."""
    assert open_keys(build(AuthSettings, {}, {})) is None


@pytest.mark.parametrize("admin", [{"rl_routes": True}, {"lora_routes": True}])
def test_admin_routes_with_api_keys_need_the_admin_key(admin: dict[str, Any]) -> None:
    """Otherwise a client without an API key could change the weights."""
    auth = AuthSettings(keys=tuple(parse_keys("sesame", "file")))

    with pytest.raises(InvalidRequest, match="--admin-key-file"):
        CoordinatorSettings(("worker:1",), auth=auth, admin=AdminSettings(**admin))
    CoordinatorSettings(("worker:1",), auth=auth, admin=AdminSettings(admin_key=AdminKey("admin"), **admin))
