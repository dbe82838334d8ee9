#!/usr/bin/env bash
# From a machine with Python 3.11+, Java 17+ and make to everything that the targets of the Makefile need. Run again freely.
# Stops with a plain message when something is missing that nothing works without; warns when only a part will not work.
set -euo pipefail
cd "$(dirname "$0")/.."

UV_VERSION=0.13.8 # what the lock file was made with; any uv on PATH is taken as it is

fail() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3.12 python3.11 python3; do
    if [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  fail "no Python 3.11 or newer: install it, or name it: make setup PYTHON=/path/to/python3.11"
}

check_java() {
  local java version
  java=${JAVA_HOME:+$JAVA_HOME/bin/}java
  command -v "$java" >/dev/null || fail "no Java: Spark needs a JDK or JRE 17 or newer on PATH, or JAVA_HOME set to one"
  version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1)
  [ "${version:-0}" -ge 17 ] || fail "$java is Java ${version:-of an unknown version}: Spark needs 17 or newer; set JAVA_HOME to one"
}

find_uv() {
  if command -v uv >/dev/null && uv --version >/dev/null 2>&1; then
    command -v uv
    return
  fi
  local home=.headrace/uv
  if [ ! -x "$home/bin/uv" ]; then
    printf 'setup: no uv on PATH; installing uv %s into %s\n' "$UV_VERSION" "$home" >&2
    "$1" -m venv "$home" >&2 || fail "$1 cannot make a virtual environment (on Debian: apt install python3-venv), or install uv: https://docs.astral.sh/uv"
    "$home/bin/python" -m pip install --quiet "uv==$UV_VERSION" >&2 || fail "cannot install uv $UV_VERSION with pip: check the network, or install uv: https://docs.astral.sh/uv"
  fi
  printf '%s\n' "$home/bin/uv"
}

# A python outside the range of pyproject.toml only bootstraps uv, which then brings its own.
python=$(find_python)
check_java
uv=$(find_uv "$python")
# with bytecode: where Python may not write its own, a command compiles for a second what it imports, each time
"$uv" sync --frozen --all-extras --compile-bytecode || fail "uv could not install what uv.lock names (its message is above)"
.venv/bin/python -m compileall -q jobs/headrace snapshots plugins lab
# without it everything works, and each start of Spark takes twice as long; --no-archive: `make archive` follows
[ "${1:-}" = --no-archive ] || .venv/bin/python -m scripts.spark_archive || printf 'setup: no class-data archive of Spark (why is above); make archive tries again\n' >&2
printf 'setup: done. Next: make demo\n'
