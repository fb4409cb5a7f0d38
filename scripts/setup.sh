#!/bin/sh
# Install tokenwire with the given dependency groups into .venv: scripts/setup.sh cpu dev
#
# Versions are those of pyproject.toml's [tool.uv]. torch must be a CPU build, which PyPI has not: it comes from PyTorch's
# own index, unless pip is configured with find-links that hold one. TORCH_BACKEND= takes PyPI's, which is for NVIDIA's GPUs;
# VENV names another folder.
set -eu
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}" venv="${VENV:-.venv}" torch="${TORCH_BACKEND-cpu}"

"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || {
    echo "tokenwire needs Python 3.11 to 3.13; set PYTHON=/path/to/one" >&2
    exit 1
}
echo "tokenwire: installing ($*) into $venv"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
[ -x "$venv/bin/uv" ] || "$venv/bin/python" -m pip install --quiet uv

# uv does not read pip's configuration: hand over what matters here.
configured() { "$venv/bin/python" -m pip config get "global.$1" 2>/dev/null || true; }
index="${PIP_INDEX_URL:-$(configured index-url)}"
links="${PIP_FIND_LINKS:-$(configured find-links)}"
[ -z "$index" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
[ -z "$links" ] || export UV_FIND_LINKS="${UV_FIND_LINKS:-$links}"
# What pyproject.toml pins and leaves out is for torch on CPUs.
pinned="$([ -n "$torch" ] || echo --no-config)" backend="${torch:+--torch-backend=$torch}"
if [ "$torch" = cpu ] && echo "torch==2.13.0+cpu" | "$venv/bin/uv" pip compile --quiet --no-index --no-deps - >/dev/null 2>&1; then
    backend=
fi

for group; do
    set -- "$@" --group "$group"
    shift
done
VIRTUAL_ENV="$PWD/$venv" "$venv/bin/uv" $pinned pip install $backend "$@" --editable .
