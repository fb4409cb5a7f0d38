#!/bin/sh
# Install tokenwire with the given extras into .venv: scripts/setup.sh cpu,dev
#
# torch must be a CPU build. Where pip is configured with find-links that hold one, that
# one is taken; elsewhere uv finds PyTorch's CPU index by itself (--torch-backend cpu).
set -eu
cd "$(dirname "$0")/.."
extras="$1"
python="${PYTHON:-python3}"

"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || {
    echo "tokenwire needs Python 3.11 to 3.13; set PYTHON=/path/to/one" >&2
    exit 1
}
[ -x .venv/bin/python ] || "$python" -m venv .venv
[ -x .venv/bin/uv ] || .venv/bin/python -m pip install --quiet uv

# uv does not read pip's configuration: hand over what matters here.
index="${PIP_INDEX_URL:-$(.venv/bin/python -m pip config get global.index-url 2>/dev/null || true)}"
[ -z "$index" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
links="${PIP_FIND_LINKS:-$(.venv/bin/python -m pip config get global.find-links 2>/dev/null || true)}"

install() {
    .venv/bin/uv pip install --python .venv/bin/python --constraint constraints.txt \
        --override scripts/overrides.txt "$@" --editable ".[$extras]"
}

echo "tokenwire: installing [$extras] into .venv"
if [ -n "$links" ] && .venv/bin/python -m pip download --quiet --no-deps --no-index --find-links "$links" \
    --dest "$(mktemp -d)" torch==2.13.0 >/dev/null 2>&1; then
    install --find-links "$links" torch==2.13.0+cpu
else
    install --torch-backend cpu
fi
