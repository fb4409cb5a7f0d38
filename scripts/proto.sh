#!/bin/sh
# Generates tokenwire/v1 from proto/ under the directory $1.
#
# Generated code runs with the protobuf and the grpcio that made it and with later ones, so early ones make it: several
# minors of vLLM need protobuf 6 (docs/reference/compatibility.md). They are kept apart from what tokenwire runs with.
set -eu
cd "$(dirname "$0")/.."
tools=.venv/proto-tools
if [ ! -d "$tools" ]; then
    .venv/bin/python -m venv "$tools.new"
    "$tools.new/bin/python" -m pip install --quiet grpcio-tools==1.72.1 'setuptools<81'
    mv "$tools.new" "$tools"
fi
exec "$tools/bin/python" -m grpc_tools.protoc \
    -Iproto --python_out="$1" --pyi_out="$1" --grpc_python_out="$1" proto/tokenwire/v1/*.proto
