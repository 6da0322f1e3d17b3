#!/usr/bin/env bash
# Writes constraints.txt and constraints-sinks.txt: every package that a fresh install of .venv and .venv-sinks takes
# today, at its version, for Python 3.11. Called by `make constraints`, which has made the environment .venv-constraints.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv-constraints/bin/python

# write FILE TORCH EXTRAS ENVIRONMENT
write() {
    $python -m pip install "$2"
    $python -m pip install ".[$3]"
    {
        echo "# Every package of the $4, at the version that is tested (\`make constraints\`)."
        # without the local part of a version (2.13.0+cpu), so that any build of it will do
        $python -m pip list --format=freeze --exclude pip --exclude gossamer | sed 's/+.*//'
    } >"$1.part"
    mv "$1.part" "$1"
}

write constraints.txt "$1" atari,gym,ray,dev,browser,docs "environments that are tested"
$python -m venv --clear .venv-constraints
write constraints-sinks.txt "$1" atari,gym,dev,wandb,trackio,mlflow "environment that sinks are tested in"
rm -rf .venv-constraints
