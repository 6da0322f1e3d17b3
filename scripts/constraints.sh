#!/usr/bin/env bash
# Writes constraints.txt: every package that a fresh install takes today, at its version, for Python 3.11.
# Called by `make constraints`, which has made the environment .venv-constraints.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv-constraints/bin/python
$python -m pip install "$1"
$python -m pip install ".[atari,gym,ray,dev]"
{
    echo "# Every package of the environments that are tested, at the version that is tested (\`make constraints\`)."
    # without the local part of a version (2.13.0+cpu), so that any build of it will do
    $python -m pip list --format=freeze --exclude pip --exclude gossamer | sed 's/+.*//'
} >.constraints.part
mv .constraints.part constraints.txt
rm -rf .venv-constraints
