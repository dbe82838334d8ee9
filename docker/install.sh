#!/usr/bin/env bash
# Installs what uv.lock names into /opt/headrace/.venv (arguments: which part of it, as `uv export` takes them), and
# Headrace itself as links to the folders that the images copy afterwards.
set -euo pipefail
cd /opt/headrace

if [ -s /run/secrets/certificates ]; then export SSL_CERT_FILE=/run/secrets/certificates; fi
/opt/uv/bin/uv venv --quiet --python /usr/bin/python3 .venv
/opt/uv/bin/uv export --frozen --no-dev --no-emit-project --quiet "$@" --output-file /tmp/requirements.txt
/opt/uv/bin/uv pip sync --quiet --require-hashes /tmp/requirements.txt
mkdir -p jobs/headrace snapshots/headrace_snapshots plugins/headrace_airflow && touch README.md
# without sources: the workspace has the package lab, which is not in the images
/opt/uv/bin/uv pip install --quiet --no-deps --no-sources --editable .
