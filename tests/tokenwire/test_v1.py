"""The generated protobuf code of tokenwire/v1."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_generated_code_matches_the_proto_files(tmp_path: Path) -> None:
    """`make proto` would change nothing."""
    protos = sorted((ROOT / "proto/tokenwire/v1").glob("*.proto"))
    outputs = [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", f"--grpc_python_out={tmp_path}"]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}", *outputs, *map(str, protos)]

    subprocess.run(command, check=True)

    fresh = {path.name: path.read_text() for path in (tmp_path / "tokenwire/v1").iterdir()}
    kept = {path.name: path.read_text() for path in (ROOT / "tokenwire/v1").glob("*_pb2*")}
    assert kept == fresh
