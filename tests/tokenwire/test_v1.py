"""The generated protobuf code of tokenwire/v1."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.npm
def test_generated_code_matches_the_proto_files(tmp_path: Path) -> None:
    """`make proto` would change nothing."""
    subprocess.run([ROOT / "scripts/proto.sh", str(tmp_path)], check=True, timeout=240)

    fresh = {path.name: path.read_text() for path in (tmp_path / "tokenwire/v1").iterdir()}
    kept = {path.name: path.read_text() for path in (ROOT / "tokenwire/v1").glob("*_pb2*")}
    assert kept == fresh
