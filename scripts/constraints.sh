#!/usr/bin/env bash
# Writes constraints.txt, constraints-sinks.txt and constraints-envs.txt: every package that a fresh install of .venv,
# .venv-sinks and .venv-envs takes today, at its version, for Python 3.11. Called by `make constraints`, which has made
# the environment .venv-constraints: constraints.sh TORCH OTHER_ENVS...
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv-constraints/bin/python
torch=$1
shift

# write FILE ENVIRONMENT EXTRAS PACKAGES...: the environment may have more packages already
write() {
    $python -m pip install "$torch"
    $python -m pip install ".[$3]" "${@:4}"
    {
        echo "# Every package of the $2, at the version that is tested (\`make constraints\`)."
        # without the local part of a version (2.13.0+cpu), so that any build of it will do
        $python -m pip list --format=freeze --exclude pip --exclude gossamer | sed 's/+.*//'
    } >"$1.part"
    mv "$1.part" "$1"
}

write constraints.txt "environments that are tested" atari,gym,ray,dev,browser,docs
$python -m venv --clear .venv-constraints
write constraints-sinks.txt "environment that sinks are tested in" atari,gym,dev,wandb,trackio,mlflow
$python -m venv --clear .venv-constraints
$python -m pip install --no-deps nle pybind11 # as in the Makefile
write constraints-envs.txt "environment that other packages' environments are tested in" atari,gym,dev,envpool "$@"
rm -rf .venv-constraints
