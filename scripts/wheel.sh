#!/usr/bin/env bash
# Builds the wheel and tries it as a stranger would: installed into an environment of its own, run from elsewhere.
# Called by `make wheel`.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
rm -rf dist build .venv-wheel
.venv/bin/python -m build --wheel --outdir dist
wheel=$(echo "$root"/dist/*.whl)

.venv/bin/python -m venv .venv-wheel
python=$root/.venv-wheel/bin/python
"$python" -m pip install -c constraints.txt "$1"
"$python" -m pip install -c constraints.txt "$wheel[atari]"

elsewhere=$(mktemp -d)
trap 'rm -rf "$elsewhere" "$root/.venv-wheel"' EXIT
cd "$elsewhere"
"$python" - "$root/.venv-wheel" <<'PY'
import importlib.metadata, pathlib, sys
import gossamer
where = pathlib.Path(gossamer.__file__)
assert where.is_relative_to(sys.argv[1]), f"imported from {where}, not from the wheel"
assert (where.parent / "py.typed").is_file(), "py.typed is not in the wheel"
files = [str(file) for file in importlib.metadata.files("gossamer")]
assert any(file.endswith("LICENSE") for file in files), "LICENSE is not in the wheel"
strangers = {file.split("/")[0] for file in files} - {"gossamer", "..", f"gossamer-{gossamer.__version__}.dist-info"}
assert not strangers, f"the wheel installs {strangers} too"
PY
"$root/.venv-wheel/bin/gossamer" list
"$root/.venv-wheel/bin/gossamer" train paac --env catch --steps 2000 --run-dir run
"$root/.venv-wheel/bin/gossamer" evaluate run --episodes 3 --json
"$root/.venv-wheel/bin/gossamer" watch run --save page.html
echo "wheel: $wheel works"
