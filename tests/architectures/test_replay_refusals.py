"""What systems with a replay memory do not work with is refused in one line, before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossamer import cli

REFUSED = {
    "dqn --env catch --algorithm a2c": "--algorithm a2c: has no replay memory; use --algorithm dqn, or the arch",
    "impala --env catch --algorithm dqn": "--algorithm dqn: learns from a replay memory, not from a queue",
    "paac --env Pendulum-v1 --algorithm dqn": "--algorithm dqn: Pendulum-v1 has 1 continuous actions",
    "dqn --env catch --memory lstm": "--memory lstm: dqn has none",
    "dqn --env catch --buffer-size 100": "--learning-starts 1000: must be at most --buffer-size 100",
    "dqn --env catch --buffer-size 50 --learning-starts 40": "--buffer-size 50: must be at least --batch-size 128",
    "dqn --env catch --steps 900 --learning-starts 1000": "--learning-starts 1000: must be less than --steps 900",
    "dqn --env catch-pixels --buffer-size 10000000000": "--buffer-size 10000000000: its steps take",
    "dqn --env catch --buffer-size 200 --learning-starts 50 --num-envs 16 --n-step 20": "--buffer-size 200: keeps 12 "
    "steps of each of 16 environments, but rollouts and samples have up to 20; use at least 320",
    "dqn --env catch --algorithm r2d2 --memory none": "--memory none: r2d2 needs a memory; use --memory lstm, or",
    "paac --env Pendulum-v1 --algorithm r2d2": "--algorithm r2d2: Pendulum-v1 has 1 continuous actions",
    "dqn --env catch --algorithm r2d2 --normalize-returns": "--normalize-returns: has no effect with --algorithm r2d2",
    "dqn --env catch --algorithm r2d2 --buffer-size 1000 --num-envs 16 --sequence-length 60 --burn-in 4 "
    "--rollout-length 20": "--buffer-size 1000: keeps 62 steps of each of 16 environments, but a rollout and a "
    "sequence take 83; use at least 1328",
    "dqn --env catch --algorithm r2d2 --rollout-length 200": "--rollout-length 200: must be at most --sequence-length",
    "impala --env catch --algorithm r2d2": "--algorithm r2d2: learns from a replay memory, not from a queue",
    "dqn --env catch --priority-exponent 2": "--priority-exponent 2.0: must be at most 1",
    "dqn --env catch --epsilon-end 1.5": "--epsilon-end 1.5: must be at most 1",
    "gorila --env catch --algorithm a2c": "--algorithm a2c: has no replay memory, from which gorila learns",
    "gorila --env catch --learners 2": "--learners 2: has no effect without --actors",
    "gorila --env catch --actors 2 --replay-shards 3": "--replay-shards 3: there are 2 actors, each of which has one",
    "gorila --env catch --actors 2 --max-ahead 100": "--max-ahead 100: must be at least --batch-size 128",
    "gorila --env catch --bundles 0": "--bundles 0: must be at least 1",
    "gorila --env catch --max-delay -1": "--max-delay -1: must be at least 0",
    "gorila --env catch --shards 100000": "--shards 100000: must be at most 65,536",
    "gorila --env catch --shards 3000": "--shards 3000: the network's 7,632 parameters can be split over 477 at most",
    "gorila --env catch --optimizer muon": "--optimizer muon: needs whole matrices, which shards do not have; use adam",
    "apex --env catch --algorithm a2c": "--algorithm a2c: has no replay memory, from which apex learns",
    "apex --env Pendulum-v1": "--algorithm dqn: Pendulum-v1 has 1 continuous actions",
    "apex --env catch --actors 2 --replay-shards 3": "--replay-shards 3: there are 2 actors, each",
    "apex --env catch --max-ahead 100": "--max-ahead 100: must be at least --batch-size 128",
    "apex --env catch --num-envs 3 --actors 2": "--num-envs 3: must be a multiple of --actors 2",
    "apex --env catch-pixels --buffer-size 10000000000": "--buffer-size 10000000000: its steps take",
    "gorila --env catch --bundles 4 --steps 2000 --learning-starts 1000": "--learning-starts 1000: each of 4 replay "
    "memories gets only 500 of --steps 2,000, so that nothing is learned",
    "dqn --env catch --steps 2000 --samples-per-insert 0.01": "--steps 2,000: too few for a batch of 128 samples: ",
    "r2d2 --env recall --steps 4000 --learning-starts 3000 --replay-ratio 0.001": "--steps 4,000: too few for a batch",
    "apex --env catch --num-envs 64 --actors 1 --buffer-size 200 --learning-starts 50 --batch-size 32": "--buffer-size "
    "200: keeps 3 steps of each of 64 environments, but rollouts and samples have up to 4; use at least 256",
    "r2d2 --env catch --num-envs 8 --actors 2 --buffer-size 200 --learning-starts 50": "--buffer-size 200: keeps 25 "
    "steps of each of 8 environments, but a rollout and a sequence take",
    "apex --env catch --epsilon-start 0.5": "--epsilon-start 0.5: has no effect with --exploration by-environment",
    "r2d2 --env catch --epsilon-steps 9 --exploration by-environment": "--epsilon-steps 9: has no effect with --explo",
    "gorila --env catch --actors 2 --bundles 8": "--bundles 8: has no effect with --actors",
    "apex --env catch --priority-exponent 2": "--priority-exponent 2.0: must be at most 1",
    "dqn --env catch --importance-exponent 0.7": "--importance-exponent 0.7: has no effect without --priority-exponent",
    "r2d2 --env recall --priority-exponent 0 --priority-eta 0.5": "--priority-eta 0.5: has no effect without --prio",
    "paac --env catch --algorithm nstep-q --double --target-period 0": "--double: has no effect with --target-period 0",
    "dqn --env catch --epsilon-updates 9 --epsilon-steps 9": "--epsilon-steps 9: has no effect with --epsilon-updates",
    "r2d2 --env catch --memory none": "--memory none: r2d2 needs a memory",
    "r2d2 --env catch --algorithm a2c": "--algorithm a2c: has no replay memory, from which r2d2 learns",
    "r2d2 --env Pendulum-v1": "--algorithm r2d2: Pendulum-v1 has 1 continuous actions",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_is_refused_in_a_line(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["gossamer", "train", *words.split()])
    assert cli.main() == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert REFUSED[words] in told[0]
    assert list(tmp_path.iterdir()) == []
