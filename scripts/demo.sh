#!/usr/bin/env bash
# Solves Pong (mean return 18) with APPO, evaluates what was learned, films a game. Called by `make demo`.
set -uo pipefail
cd "$(dirname "$0")/.."
gossamer=.venv/bin/gossamer
run=runs/demo

interrupted=
trap 'interrupted=yes' INT # Ctrl-C goes to the training run too: it saves a checkpoint and ends; then we speak
$gossamer train appo --env pong --steps 1200000 --anneal-steps 450000 --stop-at-return 18 --run-dir $run --overwrite
code=$?
if [ -n "$interrupted" ]; then
    echo
    echo "Interrupted. To go on from the last checkpoint:  $gossamer resume $run --stop-at-return 18 && $gossamer record $run"
    echo "To begin anew:  make demo"
    exit 130
fi
trap - INT
[ $code -eq 0 ] || exit $code
set -e

echo
echo "Evaluating: 30 games, up to 30 no-ops at the start of each ..."
$gossamer evaluate $run --episodes 30 --protocol noop
echo "Filming a game ..."
$gossamer record $run

cat <<END

Everything is in $run:
  video.mp4               a game it plays
  result.json             how training ended: steps, seconds, mean return
  evaluation-noop.json    the 30 games
  metrics.jsonl           the curve, a row every two seconds; $run/tensorboard has it too
  checkpoints/            what it knows
  config.json             every setting
Next:  $gossamer show appo  |  $gossamer list  |  $gossamer train paac --env breakout  |  .venv/bin/tensorboard --logdir $run
END
