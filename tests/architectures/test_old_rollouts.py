"""Replay of trajectories that the hosts of actors keep: what is drawn is what was acted, in the share that was asked
for, and a host that dies takes its memory with it."""

from __future__ import annotations

from collections import Counter as Counts
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from some_parts import Watcher, a_task, differences
from some_rollouts import Checked, act_numbered
from some_runs import result

import gossamer
from gossamer.algorithms import VTrace
from gossamer.architectures import IMPALA
from gossamer.data import Packed, Rollout, Trajectory
from gossamer.envs.toy import Counter
from gossamer.experience import ReplayShard, TrajectoryQueue
from gossamer.experience.queue.old import OldOnHosts
from gossamer.experience.queue.replay import Mixed
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.launch.threads import threads
from gossamer.loops import act
from gossamer.system.errors import UserError
from gossamer.task import WorkerReport
from gossamer.training.counters import Replayed

FAR = Network(latency=0.01, bandwidth=1e8)
HOSTS: dict[str, Any] = {"hosts": 2, "actors": 1, "num_envs": 3, "depth": 3, "replay_size": 9}


def columns(trajectory: Trajectory) -> list[tuple[Any, ...]]:
    """What each environment of a rollout says. The last value is that of the next rollout's first observation."""
    names = ("obs", "action", "reward", "discount", "behaviour", "begins", "version")
    parts = [trajectory.column(b) for b in range(trajectory.num_envs)]
    return [(*(tuple(getattr(each, name).flatten().tolist()) for name in names), tuple(each.value[:-1, 0].tolist()))
            for each in parts]  # fmt: skip


@pytest.mark.parametrize("loading", [False, True], ids=["", "loader"])
@pytest.mark.parametrize("share", [0.5, 0.75, 0.1])
def test_old_trajectories_are_those_that_were_acted_in_the_share_that_was_asked_for(
    share: float, loading: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behaviour probabilities and versions included: the policy changes with each of the updates."""
    sent, mixed = set[tuple[Any, ...]](), list[tuple[int, Trajectory]]()
    deliver, mix = TrajectoryQueue.deliver, OldOnHosts.mixed

    def delivered(self: TrajectoryQueue, key: int, rollout: Rollout, packed: Packed) -> bool:
        sent.update(columns(packed.trajectory()))
        return deliver(self, key, rollout, packed)

    def kept(self: OldOnHosts, fresh: Trajectory) -> Mixed:
        made = mix(self, fresh)
        mixed.append((fresh.num_envs, made.data.columns(fresh.num_envs, made.data.num_envs)))
        return made

    monkeypatch.setattr(TrajectoryQueue, "deliver", delivered)
    monkeypatch.setattr(OldOnHosts, "mixed", kept)
    watcher = Watcher(steps=960)
    wired = IMPALA(**HOSTS, replay_share=share, parallel_loading=loading).program(a_task(algorithm=VTrace()))
    Simulation(1, FAR)(wired, watcher)
    # Batches of 6 fresh trajectories of 4 steps; of all trajectories, `share` are old ones.
    fresh = sum(new for new, _ in mixed)
    assert [new for new, _ in mixed] == [6] * 40
    drawn = [each for _, old in mixed for each in columns(old)]
    assert len(drawn) == int(fresh * share / (1 - share) + 1e-9)
    assert set(drawn) <= sent
    assert len(set(drawn)) > 20
    assert len({int(old.version[0, b]) for _, old in mixed for b in range(old.num_envs)}) > 10
    reports = watcher.records
    assert sum(report.stored or 0 for report in reports) == sum(report.steps for report in reports) == 960
    assert sum(report.drawn for report in reports) == sum(report.reused for report in reports) == 4 * len(drawn)


@pytest.mark.parametrize("launch", [threads, Simulation(1, FAR)], ids=["threads", "simulation"])
@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_old_trajectories_line_up_with_recurrent_states_and_final_observations(launch: Any, memory: str) -> None:
    """Whole rollouts, across ends of episodes; `Checked` computes mu and the values anew, with the state."""
    Checked.seen.clear()
    env, algorithm = Counter(7, truncate=True), Checked(gamma=0.5)
    task = a_task(env, algorithm, rate=0.0, rollout_length=5, memory=memory, memory_units=4)
    watcher = Watcher(steps=600)
    launch(IMPALA(**HOSTS, replay_share=0.5, reuse=2).program(task).with_loops({act: act_numbered}), watcher)
    steps = Counts(Checked.seen)
    assert len(steps) == 600
    assert sum(report.drawn for report in watcher.records) == 600  # once, although each batch is used twice
    rollouts = defaultdict[tuple[int, int], set[int]](set)  # of each environment: how often its steps were seen
    for (number, episode, age), count in steps.items():
        rollouts[number, (7 * episode + age) // 5].add(count)
    assert {len(counts) for counts in rollouts.values()} == {1}  # rollouts are drawn as a whole


class Dying(Watcher):
    """An observer that takes back what dead workers had leased, and counts what is lost from memories."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.replayed, self.drawn = Replayed(), list[int]()

    def died(self, worker: str) -> None:
        self.budget.release(worker)
        self.replayed.died(worker)

    def report(self, worker: str, record: Any) -> None:
        super().report(worker, record)
        if isinstance(record, WorkerReport):
            self.replayed.update(worker, record)
            if record.learned:
                self.drawn.append(record.drawn)


@pytest.mark.parametrize("loading", [False, True], ids=["", "loader"])
def test_a_host_that_dies_takes_its_memory_with_it_and_the_learner_goes_on_with_the_others(loading: bool) -> None:
    """Each host keeps 9 trajectories, 3 of each of 3 environments: 36 steps. A half of each batch is old, also of those
    of one host's rollouts."""
    watcher = Dying(steps=9_600)
    wired = IMPALA(**HOSTS, replay_share=0.5, parallel_loading=loading).program(a_task(algorithm=VTrace()))
    simulation = Simulation(2, FAR, Faults(crashes=[(3.0, "actors0", 30.0)]))
    simulation(wired, watcher)
    assert simulation.crashes == [(3.0, "actors0")]
    assert watcher.replayed.lost == 36
    learned = sum(report.learned for report in watcher.records)
    assert learned >= 9_600 - 12  # at most the rollout of the actor that died is not learned from
    # One batch was drawn while the host was away and had not been missed yet: it waited 5 s for the answer.
    assert sum(watcher.drawn) == learned


def test_while_no_host_has_any_trajectories_the_learner_goes_on_without() -> None:
    """The only host dies and begins with an empty memory. What it cannot give is not made up for later."""
    watcher = Dying(steps=9_600)
    wired = IMPALA(**{**HOSTS, "hosts": 1}, replay_share=0.5).program(a_task(algorithm=VTrace()))
    Simulation(2, FAR, Faults(crashes=[(1.0, "actors0", 2.0)]))(wired, watcher)
    assert watcher.replayed.lost == 36
    assert set(watcher.drawn) <= {0, 12}  # of batches of 12 fresh steps
    assert watcher.drawn[-1] == 12


def test_without_hosts_the_learner_keeps_them_and_with_hosts_it_has_none() -> None:
    for hosts, kept, elsewhere in ((0, 50, 0), (2, 0, 50)):
        given: dict[str, Any] = {**HOSTS, "hosts": hosts, "replay_share": 0.5, "replay_size": 50}
        wired = IMPALA(**given, parallel_loading=True).program(a_task(algorithm=VTrace()))
        (learner,) = [worker for worker in wired.workers if worker.name == "learn"]
        demand = learner.args[1].demand(0)
        assert (demand.replayed, demand.elsewhere) == (kept, elsewhere)
        found = [(service.name, service.host) for service in wired.services if service.make is ReplayShard]
        assert found == [(f"ReplayShard[{h}]", f"actors{h}") for h in range(hosts)]
        edges = [worker for worker, service in wired.edges() if service.startswith("ReplayShard")]
        assert edges == ["load"] * hosts + [f"act[{h}]" for h in range(hosts)]


def test_each_learner_draws_from_all_hosts_that_act_for_its_host() -> None:
    given: dict[str, Any] = {**HOSTS, "hosts": 4, "learners": 2, "learner_hosts": 2, "num_envs": 6}
    watcher = Watcher(steps=2_880)
    wired = IMPALA(**given, replay_share=0.5).program(a_task(algorithm=VTrace()))
    drawn = Counts((worker, service) for worker, service in wired.edges() if service.startswith("ReplayShard"))
    for learner in range(4):
        first = 2 * (learner // 2)
        assert {service for worker, service in drawn if worker == f"learn[{learner}]"} == {
            f"ReplayShard[{h}]" for h in (first, first + 1)
        }
    Simulation(1, FAR)(wired, watcher)
    learned, reused = (sum(getattr(report, name) for report in watcher.records) for name in ("learned", "reused"))
    assert learned == reused == 2_880
    assert differences(*(watcher.saved[f"learn[{rank}]"]["learner"]["model"] for rank in (0, 3))) == []


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"replay_size": 2}, "--replay-size 2: must be --num-envs 3 or more"),
        ({"replay_size": 10**7, "rollout_length": 10**5}, "--replay-size 10000000: its trajectories take"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(given: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=text):
        gossamer.train("impala", env="catch", **{**HOSTS, "replay_share": 0.5, "steps": 10**9, **given},
                       run_dir=tmp_path / "run")  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_begins_with_empty_memories(tmp_path: Path) -> None:
    quick: dict[str, Any] = {**HOSTS, "env": "catch", "replay_share": 0.5, "threads": 1, "rollout_length": 5}
    run = gossamer.train("appo", steps=960, run_dir=tmp_path / "run", log="none", **quick)
    before = result(run.directory)["replay"]
    assert before["stored"] == result(run.directory)["steps"]
    gossamer.resume(run.directory, steps=1920)
    after = result(run.directory)
    assert after["replay"]["stored"] == after["steps"] >= 1920
    assert after["replay"]["drawn"] == after["reused"] > before["drawn"] > 0
    assert after["replay"]["lost"] == 0
