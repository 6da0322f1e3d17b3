"""Scores, thresholds and mean curves of methods."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from some_results import episodes, rising, write_run

from gossamer.reporting import comparison, human, measures, statistics
from gossamer.reporting.comparison import Comparison
from gossamer.reporting.measures import Scores
from gossamer.reporting.runs import load, sources
from gossamer.reporting.summary import summary
from gossamer.reporting.tables import USAGE, Table, tables
from gossamer.system.errors import UserError

PINNED = {
    "battle_zone": (2360.0, 37187.5),
    "double_dunk": (-18.6, -16.4),
    "name_this_game": (2292.3, 8049.0),
    "phoenix": (761.4, 7242.6),
    "qbert": (163.9, 13455.0),
}


def compared(folder: Path, **labels: Path) -> Comparison:
    return comparison.compare(*load(sources([folder], labels)))


def evaluated(run: Path, mean: float, protocol: str = "plain", **other: object) -> None:
    content = {"episodes": 30, "greedy": False, "mean_return": mean, "steps": 3_000, "max_steps": 27_000} | other
    (run / f"evaluation-{protocol}.json").write_text(json.dumps(content))


def by_directory(scores: Scores) -> dict[Path, float]:
    """Of runs of one environment."""
    return {directory: value for (directory, _), value in scores.values.items()}


def test_training_scores_are_those_at_the_end_of_the_shortest_run(tmp_path: Path) -> None:
    short = write_run(tmp_path / "short", episodes([0.5] * 200), seed=1, steps=2_000)
    long = write_run(tmp_path / "long", episodes([0.0] * 150 + [1.0] * 150), seed=2, steps=2_000)
    scores = measures.scores(compared(tmp_path))
    # The long run's 200th episode: 50 of its last 100 gave 1.
    assert by_directory(scores) == {short: 0.5, long: 0.5}
    assert scores.of_training


def test_evaluations_are_taken_where_all_runs_have_one_of_the_same_kind(tmp_path: Path) -> None:
    one, two = (write_run(tmp_path / str(seed), rising(1.0), seed=seed) for seed in (1, 2))
    evaluated(one, 0.25)
    assert measures.scores(compared(tmp_path)).of_training
    evaluated(two, 0.75, greedy=True)
    assert measures.scores(compared(tmp_path)).of_training
    evaluated(two, 0.75)
    found = measures.scores(compared(tmp_path))
    assert (by_directory(found), found.of_training) == ({one: 0.25, two: 0.75}, False)
    assert "30 evaluation games (gossamer evaluate, protocol plain, sampled actions)" in found.what


def test_games_of_evaluations_that_were_cut_off_are_told(tmp_path: Path) -> None:
    one, two = (write_run(tmp_path / str(seed), rising(1.0), seed=seed) for seed in (1, 2))
    evaluated(one, 0.25, cut_off=2)
    evaluated(two, 0.75, cut_off=5)
    scores = measures.scores(compared(tmp_path))
    # Of 30 games each
    assert scores.what.endswith("sampled actions); 7 of all 60 games cut off at the limit of steps")
    told = "evaluation-plain.json: 7 of all 60 games were cut off at the limit of steps; "
    assert scores.notes == (f"{told}scores include only the steps before.",)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"steps": 2_000}, "2 ended at 3,000 steps and was evaluated at 2,000"),  # resumed since, or --checkpoint best
        ({"max_steps": 100}, "the evaluations of the runs differ in max_steps"),
        ({"episodes": 29}, "the evaluations of the runs differ in episodes"),
        ({"member": "0", "greedy": True}, "the evaluations of the runs differ in greedy, member"),
    ],
)
def test_stale_and_unlike_evaluations_are_no_scores_and_a_note_says_so(
    tmp_path: Path, other: dict[str, object], why: str
) -> None:
    one, two = (write_run(tmp_path / str(seed), rising(1.0), seed=seed) for seed in (1, 2))
    evaluated(one, 0.25, member="average")
    evaluated(two, 0.75)  # of one member: there is no other average
    assert not measures.scores(compared(tmp_path)).of_training
    evaluated(two, 0.75, **other)
    found = compared(tmp_path)
    scores = measures.scores(found)
    assert scores.of_training
    (note,) = scores.notes
    assert note.startswith("evaluation-plain.json: not used as scores, as ")
    assert note.endswith(f"{why}.")
    assert note in summary(found, scores, {})["notes"]


def test_games_of_two_environments_may_be_cut_off_at_different_steps(tmp_path: Path) -> None:
    one, two = write_run(tmp_path / "1", rising(1.0)), write_run(tmp_path / "2", rising(1.0), env="CartPole-v1")
    evaluated(one, 0.25)
    evaluated(two, 0.75, max_steps=500)
    assert by_directory(measures.scores(compared(tmp_path))) == {one: 0.25, two: 0.75}


def test_evaluations_beside_training_are_taken_where_all_runs_have_one_of_their_end(tmp_path: Path) -> None:
    one, two = (write_run(tmp_path / str(seed), rising(1.0), seed=seed, eval_every=1_000) for seed in (1, 2))
    end = 3_000
    beside(one, 0.25, end)
    assert measures.scores(compared(tmp_path)).notes == (
        "evaluations.jsonl: not used as scores, as only 1 of the 2 runs have one.",
    )
    beside(two, 0.5, end - 1)
    assert measures.scores(compared(tmp_path)).of_training
    beside(two, 0.75, end, episodes=11)
    assert measures.scores(compared(tmp_path)).of_training
    beside(two, 0.75, end)
    found = measures.scores(compared(tmp_path))
    assert (by_directory(found), found.of_training, found.notes) == ({one: 0.25, two: 0.75}, False, ())
    assert "last evaluation of 10 games beside training (--eval-every, protocol plain)" in found.what
    evaluated(one, 0.125)
    evaluated(two, 0.125, steps=end - 1)
    found = measures.scores(compared(tmp_path))
    assert by_directory(found) == {one: 0.25, two: 0.75}  # the next kind, and the note on the first
    assert len(found.notes) == 1
    evaluated(two, 0.125)
    assert by_directory(measures.scores(compared(tmp_path))) == {one: 0.125, two: 0.125}


def beside(run: Path, mean: float, steps: int, episodes: int = 10) -> None:
    with open(run / "evaluations.jsonl", "a") as file:
        file.write(json.dumps({"steps": steps, "protocol": "plain", "episodes": episodes, "mean_return": mean}) + "\n")


def test_a_mean_curve_ends_with_its_first_run_and_begins_when_all_have_played(tmp_path: Path) -> None:
    for seed, score, number in ((1, 0.0, 100), (2, 0.3, 150), (3, 0.6, 150)):
        write_run(tmp_path / str(seed), episodes([score] * number), seed=seed, steps=1_500, frames_per_step=4)
    found = compared(tmp_path)
    curve = measures.mean_curve("catch", found.methods[0], "steps")
    assert (curve.points[0], curve.points[-1]) == (10, 1_000)  # the first episode ends at step 10
    assert curve.runs == 3
    np.testing.assert_allclose(curve.iqm, 0.3)  # of three scores none is left out
    low, high = statistics.interval(statistics.iqm, np.array([[0.0], [0.3], [0.6]]), statistics.RESAMPLES_CURVE) or (
        0,
        0,
    )
    np.testing.assert_allclose(curve.band, [[low] * len(curve.points), [high] * len(curve.points)])
    assert measures.mean_curve("catch", found.methods[0], "seconds").points[-1] == 50.0
    assert measures.in_frames(curve, found.methods[0]).points[-1] == 4_000


def test_runs_with_several_frame_skips_have_their_mean_at_equal_frames(tmp_path: Path) -> None:
    """One run has 0 for 2,000 frames and then 1, in steps of 4 frames; the other the same in steps of 2 frames."""
    for seed, frames, number in ((1, 4, 100), (2, 2, 200)):
        scores = [0.0] * (number // 2) + [100.0] * (number // 2)
        write_run(tmp_path / str(seed), episodes(scores), seed=seed, steps=2_000, frames_per_step=frames)
    method = compared(tmp_path).methods[0]
    curve = measures.in_frames(measures.mean_curve("catch", method, "steps"), method)
    assert curve.points[-1] == 4_000
    assert curve.iqm[curve.points < 2_000].max() == 0
    assert curve.iqm[curve.points >= 2_040].min() > 0  # against steps one run would be half as far there
    in_steps = measures.mean_curve("catch", method, "steps")
    assert in_steps.points[-1] == 1_000


def test_two_runs_have_no_band(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / str(seed), rising(1.0), seed=seed)
    assert measures.mean_curve("catch", compared(tmp_path).methods[0], "steps").band is None


def test_runs_that_have_no_second_in_common_have_no_mean_over_seconds(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [(10, 1.0, 0.5), (20, 2.0, 0.5)], seed=1)
    write_run(tmp_path / "b", [(10, 5.0, 0.5), (20, 6.0, 0.5)], seed=2)
    assert len(measures.mean_curve("catch", compared(tmp_path).methods[0], "seconds").points) == 0


def test_never_is_reported_and_is_no_error(tmp_path: Path) -> None:
    write_run(tmp_path / "1", episodes([1.0] * 200), seed=1)
    write_run(tmp_path / "2", episodes([0.0] * 200), seed=2)
    found = compared(tmp_path)
    reached = measures.reached("catch", "x", found.methods[0].of("catch"), 0.5)
    assert (reached.steps, reached.seconds, reached.number) == ([1_000, math.inf], [50.0, math.inf], 1)
    (entry,) = summary(found, measures.scores(found), {"catch": 0.5})["thresholds"]
    assert (entry["reached"], entry["runs"], entry["steps"], entry["steps_of_runs"]) == (1, 2, None, [1_000, None])


def test_a_run_told_to_end_at_the_threshold_knows_when_it_was_there(tmp_path: Path) -> None:
    told = {"stop_at_return": 0.9, "solved_steps": 2_995}
    write_run(tmp_path / "1", rising(1.0), result=told)  # its means, of the log, stay below 0.9
    runs = compared(tmp_path).methods[0].of("catch")
    assert measures.reached("catch", "x", runs, 0.9).steps == [2_995]
    assert measures.reached("catch", "x", runs, 0.89).steps == [math.inf]


@pytest.mark.parametrize(
    ("given", "goals"),
    [
        ([], {"pong": 18.0}),  # the catch runs do not agree
        (["5"], {"pong": 5.0, "catch": 5.0}),
        (["pong=-3.5"], {"pong": -3.5}),
        (["pong=3", "1"], {"pong": 3.0, "catch": 1.0}),
    ],
)
def test_thresholds_are_given_or_those_that_runs_were_to_end_at(
    tmp_path: Path, given: list[str], goals: dict[str, float]
) -> None:
    pytest.importorskip("ale_py", reason="ale-py is not installed (the extra `atari`)")
    write_run(tmp_path / "1", rising(1.0), env="pong", result={"stop_at_return": 18.0})
    write_run(tmp_path / "2", rising(1.0), result={"stop_at_return": 0.5})
    write_run(tmp_path / "3", rising(1.0), seed=2)
    assert measures.thresholds(compared(tmp_path), given) == goals


def test_runs_may_be_told_to_end_at_0(tmp_path: Path) -> None:
    write_run(tmp_path / "1", rising(1.0), result={"stop_at_return": 0.0})
    assert measures.thresholds(compared(tmp_path), []) == {"catch": 0.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [("x", "must be a return"), ("pong=1", "no run of pong"), ("nan", "finite"), ("catch=", "must be a return")],
)
def test_an_invalid_threshold_is_refused(tmp_path: Path, text: str, message: str) -> None:
    write_run(tmp_path / "1", rising(1.0))
    with pytest.raises(UserError, match=f"--threshold {text}: .*{message}"):
        measures.thresholds(compared(tmp_path), [text])


@pytest.mark.parametrize("env", ["ms_pacman", "ALE/MsPacman-v5", "MsPacman-v5"])
def test_a_game_is_known_by_all_its_names(env: str) -> None:
    assert human.reference(env) == (307.3, 6951.6)
    np.testing.assert_allclose(measures.normalised(np.array([307.3, 6951.6]), env), [0, 1])


def test_human_scores_are_those_of_the_source() -> None:
    """Wang et al. (2016), Table 2: random and human, no-op starts."""
    assert {env: human.reference(env) for env in PINNED} == PINNED


def test_other_environments_have_no_human_score() -> None:
    assert human.reference("catch") is None
    assert np.isnan(measures.normalised(np.array([1.0]), "catch")).all()


def test_there_are_57_games_and_all_are_of_ale() -> None:
    pytest.importorskip("ale_py", reason="ale-py is not installed (the extra `atari`)")
    from gossamer.envs.atari import list_games

    assert len(human.RANDOM_AND_HUMAN) == 57
    assert human.RANDOM_AND_HUMAN.keys() <= set(list_games())


def test_environments_of_all_methods_are_aggregated(tmp_path: Path) -> None:
    pytest.importorskip("ale_py", reason="ale-py is not installed (the extra `atari`)")
    for env, last in (("pong", 14.6), ("breakout", 30.5), ("catch", 1.0)):
        for seed in (1, 2, 3):
            for architecture in ("paac", "gala"):
                place = tmp_path / f"{architecture}-{env}-{seed}"
                write_run(place, episodes([last] * 120), architecture=architecture, env=env, seed=seed)
    write_run(tmp_path / "more", episodes([14.6] * 120), env="pong", seed=4)
    write_run(tmp_path / "alone", episodes([0.0] * 120), env="qbert")
    found = compared(tmp_path)
    content = summary(found, measures.scores(found), {})
    assert content["aggregated_over"] == ["breakout", "pong"]
    assert [entry["runs"] for entry in content["aggregates"]] == [3, 3]  # the smallest number of seeds
    assert content["aggregates"][0]["iqm"] == pytest.approx(1.0)  # each is as good as a human
    assert content["aggregates"][0]["optimality_gap"] == pytest.approx(0.0)
    assert content["improvement"][0]["envs"] == 3
    assert content["improvement"][0]["probability"] == 0.5
    notes = " ".join(content["notes"])
    assert "No human score is published for catch" in notes
    assert "Not every method has runs of qbert" in notes
    assert "paac a2c on qbert (1)" in notes  # too few seeds
    np.testing.assert_allclose(measures.aggregated_curve(found, found.methods[0], ["pong", "breakout"]).iqm, 1.0)


def test_staleness_and_waiting_are_means_over_runs(tmp_path: Path) -> None:
    one = write_run(tmp_path / "1", rising(1.0), seed=1)
    write_run(tmp_path / "2", rising(1.0), seed=2, result={"policy_lag": {"mean": 2.5, "max": 9}})
    (one / "gossip.json").write_text(json.dumps({"traffic": {"staleness": {"-2": 1, "0": 1, "1": 2}}}))
    found = compared(tmp_path)
    (entry,) = summary(found, measures.scores(found), {})["speed"]
    assert (entry["policy_lag_mean"], entry["policy_lag_max"]) == (2.0, 9)
    staleness = (entry["gossip_staleness_mean"], entry["gossip_staleness_max"])
    assert staleness == (0.5, 1)  # (0 + 0 + 1 + 1) / 4: a sender that is ahead is not stale
    assert entry["shares"] == {"env": 0.25, "waits": 0.5}
    assert entry["steps_per_second"] == 20.0


def test_the_use_of_the_machine_is_reported_as_far_as_runs_have_it(tmp_path: Path) -> None:
    for seed, busy in ((1, 1.5), (2, 1.7), (3, 1.9)):  # whose median is 1.7
        used = {"cores_busy": busy, "gpu_utilization": 0.25 * seed, "frames_per_joule": 100.0 * seed}
        write_run(tmp_path / f"paac-{seed}", rising(1.0), seed=seed, frames_per_step=4, result={"usage": used})
        elsewhere = {"usage": None} if seed == 1 else {}  # the others are of an earlier version
        write_run(tmp_path / f"gala-{seed}", rising(1.0), architecture="gala", seed=seed, result=elsewhere)
    found = compared(tmp_path)
    content = summary(found, measures.scores(found), {})
    gala, paac = sorted(content["speed"], key=lambda entry: entry["cores_busy"] or 0.0)
    names = ("cores_busy", "gpu_utilization", "frames_per_joule")
    assert [paac[name] for name in names] == [1.7, 0.5, 200.0]
    assert [gala[name] for name in names] == [None, None, None]
    assert paac["frames_per_second"] == 4 * paac["steps_per_second"]

    def throughput() -> Table:
        return next(table for table in tables(content) if table.title == "Throughput and staleness")

    table = throughput()
    place = table.header.index("busy cores")
    assert table.header[place - 1 : place + 3] == list(USAGE.values())
    shown = {tuple(row[place : place + 3]) for row in table.rows}
    assert shown == {("1.70", "0.500", "200"), ("–", "–", "–")}
    for entry in content["speed"]:
        entry["gpu_utilization"] = entry["frames_per_joule"] = None
    assert [title for title in throughput().header if title in USAGE.values()] == ["frames per second", "busy cores"]
