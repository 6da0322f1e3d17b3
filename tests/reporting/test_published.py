"""Published scores beside a run's own: the data, its protocols, and what is said where they differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from some_results import episodes, write_run

import gossamer
from gossamer.evaluation.evaluate import Evaluation
from gossamer.reporting import beside, human
from gossamer.reporting.published import HUMAN, MEASURED, NOOP, Protocol, Score, normalised, published, table
from gossamer.reporting.runs import Games

DISPUTED = {"double_dunk", "venture", "video_pinball"}  # copies of Ape-X's table differ
OURS = Protocol(NOOP, 108_000, None, "sampled actions, 30 games")


def score(agent: str, env: str, starts: str = NOOP) -> Score:
    (found,) = [each for each in published(env) if (each.agent, each.protocol.starts) == (agent, starts)]
    return found


def test_every_game_is_known_and_every_column_is_told() -> None:
    assert table().keys() == human.RANDOM_AND_HUMAN.keys()
    assert all(row.keys() == {"game", *MEASURED} for row in table().values())
    assert all(column.source for column in MEASURED.values())


@pytest.mark.parametrize(
    ("agent", "games"),
    [("DQN", 49), ("Gorila", 49), ("A3C rerun", 57), ("IMPALA deep", 57), ("Ape-X", 54), ("R2D2", 57)],
)
def test_papers_have_so_many_games(agent: str, games: int) -> None:
    """Mnih 2015 and Nair 2015 have 49 of the 57 games. Of Ape-X, 3 are left out, since copies disagree."""
    found = [
        env for env in table() if any(each.agent == agent for each in published(env) if each.protocol.starts == NOOP)
    ]
    assert len(found) == games


def test_no_unchecked_agent_is_among_them() -> None:
    """The copies at hand do not have the scores of PAAC and GA3C."""
    agents = {each.agent for env in table() for each in published(env)}
    assert agents == {"random", "human", "DQN", "Gorila", "A3C", "A3C rerun", "IMPALA deep", "Ape-X", "R2D2"}


def test_scores_are_those_of_the_papers() -> None:
    assert [score("Gorila", "amidar", starts).score for starts in (NOOP, HUMAN)] == [1189.7, 189.15]
    assert score("A3C", "amidar", HUMAN).score == 263.9
    assert score("R2D2", "seaquest").score == 999_996.7
    assert score("DQN", "ALE/Pong-v5").score == 18.9
    assert published("catch") == []


def test_scores_are_normalised_with_the_same_starts() -> None:
    """Pong, no-op starts: (18.9 + 20.7) / (14.6 + 20.7) = 39.6 / 35.3; human starts: (5.6 + 18) / (15.5 + 18)."""
    known = published("pong")
    assert normalised(score("DQN", "pong"), known) == pytest.approx(39.6 / 35.3)
    assert normalised(score("A3C", "pong", HUMAN), known) == pytest.approx(23.6 / 33.5)
    assert normalised(Score("this run", 15.0, Protocol("sticky actions")), known) is None


def test_nothing_is_normalised_where_random_play_is_better_than_a_human() -> None:
    known = published("video_pinball")  # human starts: random 20,452, human 15,641.1
    assert normalised(score("DQN", "video_pinball", HUMAN), known) is None


def test_the_table_of_a_game() -> None:
    assert list(beside.lines("pong", Score("this run", 15.2, OURS))) == [
        "             score  human = 1  protocol",
        "random       -20.7       0.00  no-op starts, 30 min",
        "human         14.6       1.00  no-op starts, 30 min",
        "DQN           18.9       1.12  no-op starts, 5 min, epsilon 0.05, 30 games",
        "Gorila        18.3       1.10  no-op starts, 5 min, 30 games",
        "A3C rerun      7.0       0.78  no-op starts, 30 min, 3 seeds",
        "IMPALA deep   21.0       1.18  no-op starts, 200 games",
        "Ape-X         20.9       1.18  no-op starts, best score in training",
        "R2D2          21.0       1.18  no-op starts, 30 min, 3 seeds",
        "this run      15.2       1.02  no-op starts, 30 min, sampled actions, 30 games",
        "A3C            5.6       0.70  human starts, 30 min",
        "Here: no-op starts, 30 min, sampled actions, 30 games. Different: 5-minute cap (DQN, Gorila), epsilon 0.05 "
        "(DQN), best score in training (Ape-X), human starts (A3C). Not known: epsilon (Gorila, Ape-X, R2D2), frame "
        "cap (IMPALA deep, Ape-X).",
    ]


@pytest.mark.parametrize("env", table())
def test_no_table_is_longer_than_12_lines_and_human_starts_come_last_and_are_named(env: str) -> None:
    """Of A3C, and of Ape-X where it has no score from no-op starts."""
    lines = list(beside.lines(env, Score("this run", 0.0, OURS)))
    assert 8 <= len(lines) <= 12
    agents = [line.split()[0] for line in lines]
    own = agents.index("this")
    assert agents[own + 1 : -1] == ["A3C", "Ape-X"] if env in DISPUTED else ["A3C"]
    assert [HUMAN in line for line in lines[1:-1]] == [place > own for place in range(1, len(lines) - 1)]


def test_other_environments_have_no_table() -> None:
    assert list(beside.lines("catch", Score("this run", 1.0, OURS))) == []
    assert beside.entries("catch", OURS) == []


@pytest.mark.parametrize(
    ("own", "differences"),
    [
        (Protocol(NOOP, 18_000, 0.05), []),
        (Protocol(NOOP, 108_000, 0.05), ["5-minute cap"]),
        (Protocol(NOOP, 18_000, 0.0), ["epsilon 0.05"]),
        (Protocol("sticky actions", 18_000, None), [NOOP, "epsilon 0.05"]),
    ],
)
def test_differences_from_the_protocol_of_dqn(own: Protocol, differences: list[str]) -> None:
    """Mnih et al. 2015: up to 30 no-ops, 5 minutes, epsilon 0.05."""
    assert MEASURED["dqn"].protocol.differences(own) == differences


def test_the_protocol_of_an_evaluation() -> None:
    """4,500 steps of 4 frames are 18,000 frames: 5 minutes."""
    played = Evaluation(0.0, 0.0, 1, "noop", [0.0], 80, "step", greedy=False, max_steps=4_500, epsilon=0.05)
    assert str(beside.protocol(played, 4)) == "no-op starts, 5 min, epsilon 0.05, 1 game"
    of_report = Games("sticky", 30, True, 0.0, 80, "average", None)
    assert str(beside.protocol(of_report, 4)) == "sticky actions, 30 min, most probable actions, 30 games"


def test_all_scores_as_data() -> None:
    found = {(each["agent"], each["starts"]): each for each in beside.entries("pong", OURS)}
    assert len(found) == 14
    assert found["Gorila", NOOP] == {
        "agent": "Gorila", "score": 18.3, "human_normalised": pytest.approx(39 / 35.3), "starts": NOOP,
        "frame_cap": 18_000, "epsilon": None, "averaged": "30 games", "best_in_training": False,
        "differs": ["5-minute cap"], "not_known": ["epsilon"], "source": "Nair et al. 2015, arXiv 1507.04296",
    }  # fmt: skip


def evaluated(run: Path, mean: float) -> None:
    content = {"episodes": 30, "greedy": False, "epsilon": 0.05, "mean_return": mean, "max_steps": 27_000}
    (run / "evaluation-noop.json").write_text(json.dumps({**content, "steps": 3_000}))


def test_a_report_of_one_game_has_them(tmp_path: Path) -> None:
    pytest.importorskip("ale_py", reason="ale-py is not installed (the extra `atari`)")
    for seed, mean in ((1, 14.6), (2, 14.6)):
        run = write_run(tmp_path / str(seed), episodes([0.0] * 300), env="pong", seed=seed, frames_per_step=4)
        evaluated(run, mean)
    made = gossamer.report(tmp_path, out=tmp_path / "report")
    found = made.summary["published"]
    assert found["rows"][-2] == {
        "agent": "paac a2c", "protocol": "no-op starts, 30 min, epsilon 0.05, 30 games", "score": 14.6,
        "human_normalised": 1.0,
    }  # fmt: skip
    assert "Different: 5-minute cap (DQN, Gorila), best score in training (Ape-X), human starts (A3C)." in found["note"]
    text = made.markdown.read_text()
    assert "| Gorila | no-op starts, 5 min, 30 games | 18.3 | 1.10 |" in text
    assert "A3C, human starts: Mnih et al. 2016" in text


def test_scores_of_training_are_named_so(tmp_path: Path) -> None:
    pytest.importorskip("ale_py", reason="ale-py is not installed (the extra `atari`)")
    write_run(tmp_path / "run", episodes([3.0] * 120), env="pong")
    found = gossamer.report(tmp_path, out=tmp_path / "report").summary["published"]
    own = found["rows"][-2]
    assert (own["protocol"], own["human_normalised"]) == ("training episodes, last 100 episodes", None)


def test_reports_of_other_environments_and_of_several_have_none(tmp_path: Path) -> None:
    pytest.importorskip("ale_py", reason="ale-py is not installed (the extra `atari`)")
    write_run(tmp_path / "catch", episodes([0.5] * 120))
    assert gossamer.report(tmp_path, out=tmp_path / "report").summary["published"] is None
    write_run(tmp_path / "pong", episodes([3.0] * 120), env="pong")
    assert gossamer.report(tmp_path, out=tmp_path / "report").summary["published"] is None
