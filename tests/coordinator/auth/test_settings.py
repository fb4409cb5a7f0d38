"""The admin key of settings."""

from pathlib import Path

import pytest

from tokenwire.cli.click_options import build
from tokenwire.coordinator.auth.settings import AdminSettings
from tokenwire.errors import InvalidRequest


def test_a_key_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    """The file takes precedence; a final newline is not part of the key; an empty key is an error."""
    path = tmp_path / "key"
    path.write_text("sesame\n")
    environment = {"TOKENWIRE_ADMIN_KEY": "other"}
    from_file = build(AdminSettings, {"--admin-key-file": path}, environment).admin_key
    from_environment = build(AdminSettings, {}, environment).admin_key

    assert from_file is not None
    assert from_file.matches("sesame")
    assert from_environment is not None
    assert from_environment.matches("other")
    assert build(AdminSettings, {}, {}).admin_key is None
    path.write_text("\n")
    with pytest.raises(InvalidRequest, match="empty"):
        build(AdminSettings, {"--admin-key-file": path}, {})
