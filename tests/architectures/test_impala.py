"""IMPALA and APPO: they learn on every launcher; without lag they are A2C; steps are counted once; runs go on."""

from __future__ import annotations

import json
import sys
from collections import Counter as Counts
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from some_parts import Watcher, a_task, differences
from some_rollouts import Checked, Echoed, Uneven, act_numbered, assert_complete, check_policy
from some_runs import learned, solved
from sweeps import each_seed
from torch import nn

import gossamer
from gossamer.algorithms import A2C, PPO, AsyncPPO, VTrace
from gossamer.algorithms.losses import Loss
from gossamer.architectures import IMPALA, PAAC
from gossamer.config.build import program
from gossamer.config.resolve import configure
from gossamer.data import Trajectory
from gossamer.envs.base import VectorEnv, threads_of
from gossamer.envs.gym import Custom
from gossamer.envs.last import LastActionReward
from gossamer.envs.toy import Catch, Counter, Recall
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.launch.threads import threads
from gossamer.loops import Envs, act, role
from gossamer.runtime import Answer
from gossamer.storage.checkpoint import Store
from gossamer.storage.contents import CHECKPOINTS, LOG
from gossamer.system.errors import UserError
from gossamer.system.options import options
from gossamer.task import Recovered, Task

Launcher = Callable[..., None]
launchers = pytest.mark.parametrize("launch", [threads, Simulation(1)], ids=["threads", "simulation"])


def end_of(
    task: Task, launch: Launcher = threads, saved: dict[str, Any] | None = None, *, steps: int = 64, **given: Any
) -> Watcher:
    """A run that is over."""
    watcher = Watcher(saved, steps=steps)
    launch(IMPALA(**{"actors": 1, "num_envs": 3, "depth": 1, **given}).program(task), watcher)
    return watcher


@pytest.mark.parametrize(("name", "algorithm"), [("impala", "vtrace"), ("impala", "appo"), ("appo", "appo")])
def test_catch_is_solved_with_the_default_settings(name: str, algorithm: str, tmp_path: Path) -> None:
    solved(tmp_path / "run", name, algorithm=algorithm, steps=150_000)


@pytest.mark.parametrize("name", ["paac", "gala", "pala"])
@pytest.mark.parametrize("algorithm", ["vtrace", "appo"])
def test_its_algorithms_learn_under_the_other_architectures(name: str, algorithm: str, tmp_path: Path) -> None:
    learned(tmp_path / "run", name, algorithm=algorithm, steps=100_000, greedy=True)


def test_it_learns_in_the_simulation() -> None:
    task = a_task(Catch(), VTrace(gamma=0.98, gae_lambda=0.9, value_coef=0.05), rate=2e-3, rollout_length=5)
    watcher = end_of(task, Simulation(3), steps=40_000, actors=2, num_envs=32, depth=2)
    scores = [episode.score for record in watcher.records for episode in record.episodes]
    assert sum(scores[-500:]) / 500 >= 0.8


@dataclass(frozen=True)
class Native:
    """Catch, as if native threads stepped it; `made` has the workers of each call of `make`."""

    made: ClassVar[list[int]] = []  # of the class, because workers get copies
    name = "native"

    def threads(self, sharing: int) -> int:
        return 12 // sharing

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        self.made.append(workers)
        return Catch().make(num_envs)


@pytest.mark.parametrize(
    ("dtype", "given", "workers"),
    [
        (torch.bfloat16, {}, 3),  # 12 cores for 4 actors
        (torch.float32, {}, 2),  # and for 2 learners, which keep a core each
        (torch.float32, {"env_workers": 5}, 5),
    ],
)
def test_actors_share_the_native_threads_of_a_machine(dtype: torch.dtype, given: dict[str, int], workers: int) -> None:
    env = Native()
    env.made.clear()
    task = a_task(env, VTrace(), dtype=dtype)
    end_of(task, actors=2, learners=2, num_envs=4, steps=16, **given)
    assert list(filter(None, env.made)) == [workers] * 4  # learners make one to see what it shows
    assert threads_of(LastActionReward(env), 4) == 3
    assert threads_of(LastActionReward(Catch()), 4) == 0


@launchers
def test_without_lag_it_is_batched_a2c(launch: Launcher) -> None:
    ours = end_of(a_task(algorithm=VTrace(gae_lambda=1.0), rate=0.01), launch, steps=96)
    theirs = Watcher(steps=96)
    threads(PAAC(num_envs=3, env_workers=1).program(a_task(algorithm=A2C(gae_lambda=1.0), rate=0.01)), theirs)
    mine, other = (end.saved[name]["learner"]["model"] for end, name in ((ours, "learn"), (theirs, "act_and_learn")))
    for name in mine:
        torch.testing.assert_close(mine[name], other[name], rtol=1e-4, atol=1e-5)
    assert [e.score for r in ours.records for e in r.episodes] == [e.score for r in theirs.records for e in r.episodes]


@launchers
def test_without_lag_asynchronous_ppo_is_ppo(launch: Launcher) -> None:
    options: dict[str, Any] = {"gae_lambda": 0.9, "epochs": 2, "num_minibatches": 2, "normalize_advantage": True}
    ours = end_of(a_task(algorithm=AsyncPPO(**options), rate=0.01), launch, steps=96)
    theirs = Watcher(steps=96)
    threads(PAAC(num_envs=3, env_workers=1).program(a_task(algorithm=PPO(**options), rate=0.01)), theirs)
    mine, other = (end.saved[name]["learner"]["model"] for end, name in ((ours, "learn"), (theirs, "act_and_learn")))
    for name in mine:
        torch.testing.assert_close(mine[name], other[name], rtol=1e-3, atol=1e-4)


@launchers
@pytest.mark.parametrize("depth", [1, 3])
def test_every_step_is_learned_from_once_and_the_lag_is_bounded(launch: Launcher, depth: int) -> None:
    watcher = end_of(a_task(algorithm=VTrace()), launch, steps=500, actors=2, num_envs=4, depth=depth, batch_rollouts=2)
    assert sum(r.steps for r in watcher.records) == sum(r.learned for r in watcher.records) == 504  # whole leases of 8
    lag = {behind for r in watcher.records for behind in r.lag}
    assert min(lag) >= 0
    assert max(lag) <= depth - 1  # one update a batch


@launchers
@pytest.mark.parametrize("algorithm", [VTrace(), AsyncPPO(epochs=2, num_minibatches=2)], ids=["vtrace", "appo"])
@pytest.mark.parametrize("observations", [False, True], ids=["", "observations"])
@pytest.mark.parametrize("returns", [False, True], ids=["", "returns"])
def test_learners_that_average_gradients_stay_equal(
    launch: Launcher, algorithm: Any, observations: bool, returns: bool
) -> None:
    normalized = {"normalize_observations": observations, "normalize_returns": returns}
    task = a_task(algorithm=algorithm, rate=0.01, anneal_steps=400, **normalized)
    watcher = end_of(task, launch, steps=480, num_envs=6, actors=1, learners=2, depth=2)
    states = [watcher.saved[f"learn[{rank}]"]["learner"] for rank in range(2)]
    assert differences(states[0]["model"], states[1]["model"]) == []
    assert differences(states[0]["optimizer"], states[1]["optimizer"]) == []
    assert sum(r.learned for r in watcher.records) == 480


@pytest.mark.parametrize("env", ["catch", "Pendulum-v1"])  # continuous actions: observations and returns normalised
def test_learners_that_average_gradients_are_resumed_alike(env: str, tmp_path: Path) -> None:
    run = gossamer.train("impala", env=env, learners=2, actors=1, num_envs=8, steps=3_000, checkpoint_every=0.5,
                         run_dir=tmp_path / "run")  # fmt: skip
    assert run.result["learned"] == run.result["steps"]
    again = gossamer.resume(run.directory, steps=6_000, anneal_steps=6_000)
    assert again.result["steps"] >= 6_000
    workers = Store(run.directory / CHECKPOINTS).get("last").load()["workers"]
    first, second = (workers[f"learn[{rank}]"]["learner"]["model"] for rank in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_learners_that_average_gradients_play_as_one(tmp_path: Path) -> None:
    run = gossamer.train("impala", env="catch", learners=2, actors=1, num_envs=8, steps=2_000, run_dir=tmp_path / "run")
    assert not {"members", "average", "best_member"} & run.result.keys()
    found = [gossamer.evaluate(run.directory, episodes=4, member=member) for member in ("average", "best")]
    assert [each.member for each in found] == [None, None]
    assert found[0].returns == found[1].returns


def test_a_simulated_run_is_reproducible() -> None:
    one, other = (end_of(a_task(algorithm=VTrace()), Simulation(7), actors=3, depth=2).saved for _ in range(2))
    assert differences(one, other) == []


@pytest.mark.parametrize("loading", [False, True], ids=["", "loader"])
def test_reuse_and_replay_are_counted_apart(loading: bool) -> None:
    task, reused = a_task(algorithm=VTrace()), {"reuse": 2, "replay_share": 0.5, "replay_size": 9}
    watcher = end_of(task, Simulation(1), steps=480, depth=3, parallel_loading=loading, **reused)
    learned, reused = (sum(getattr(r, name) for r in watcher.records) for name in ("learned", "reused"))
    assert learned == sum(r.steps for r in watcher.records) == 480  # 40 batches of 12 steps
    assert sum(r.waiting is not None for r in watcher.records) == 40  # of 79 passes: each batch waited once
    # Each batch but the first has 12 replayed steps, too. All but the last are used twice.
    assert reused == 39 * 12 + 12 + 38 * 24


@launchers
@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_everything_lines_up_through_the_queue(launch: Launcher, memory: str) -> None:
    Checked.seen.clear()
    task = a_task(Counter(7), Checked(gamma=0.5), rate=0.0, rollout_length=5, memory=memory, memory_units=4)
    end_of(task, launch, steps=600, actors=1, num_envs=3, depth=3, batch_rollouts=2)
    assert len(Checked.seen) == len(set(Checked.seen)) == 600
    for env in range(3):
        steps = [(episode, age) for b, episode, age in Checked.seen if b == env]
        assert steps == [divmod(i, 7) for i in range(200)]  # nothing is missing between rollouts


@pytest.mark.parametrize("memory", ["none", "lstm"])
@pytest.mark.parametrize("loading", [False, True], ids=["", "loader"])
def test_reused_and_replayed_trajectories_line_up(memory: str, loading: bool) -> None:
    Checked.seen.clear()
    env, algorithm = Counter(7, truncate=True), Checked(gamma=0.5)
    task = a_task(env, algorithm, rate=0.0, rollout_length=5, memory=memory, memory_units=4)
    reused = {"reuse": 2, "replay_share": 0.5, "replay_size": 9}
    end_of(task, Simulation(1), steps=600, depth=3, parallel_loading=loading, **reused)
    steps = Counts(Checked.seen)
    assert len(steps) == 600
    # 40 batches of 15 steps; each but the first has 15 replayed steps, too. All but the last are used twice.
    assert steps.total() == 15 + 39 * 30 + 15 + 38 * 30


FAR = Network(latency=0.01, bandwidth=1e8)
hosts = pytest.mark.parametrize("launch", [threads, Simulation(1, FAR)], ids=["threads", "simulation"])


@hosts
@pytest.mark.parametrize("memory", ["none", "lstm"])
@pytest.mark.parametrize("loading", [False, True], ids=["", "loader"])
def test_everything_lines_up_between_hosts(launch: Launcher, memory: str, loading: bool) -> None:
    Checked.seen.clear()
    env, algorithm = Counter(7, truncate=True), Checked(gamma=0.5)
    task = a_task(env, algorithm, rate=0.0, rollout_length=5, memory=memory, memory_units=4)
    watcher = Uneven({"act[0]": 25, "act[1]": 15})
    shape: dict[str, Any] = {"hosts": 2, "actors": 1, "num_envs": 3, "depth": 3, "parallel_loading": loading}
    launch(IMPALA(**shape).program(task).with_loops({act: act_numbered}), watcher)
    assert sum(r.steps for r in watcher.records) == sum(r.learned for r in watcher.records) == (25 + 15) * 5 * 3
    assert_complete(Checked.seen, [25 * 5] * 3 + [15 * 5] * 3)


@hosts
def test_continuous_actions_line_up_between_hosts(launch: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "envs")
    task = a_task(Custom("some_envs:box"), Echoed(gamma=0.5), rate=0.0)
    watcher = end_of(task, launch, hosts=2, num_envs=3, depth=2, steps=96)
    assert sum(r.steps for r in watcher.records) == sum(r.learned for r in watcher.records) == 96


def test_catch_is_learned_by_actors_on_other_hosts() -> None:
    task = a_task(Catch(), VTrace(gamma=0.98, gae_lambda=0.9, value_coef=0.05), rate=2e-3, rollout_length=5)
    watcher = end_of(task, Simulation(3, FAR), steps=60_000, hosts=2, num_envs=16, depth=2)
    scores = [episode.score for record in watcher.records for episode in record.episodes]
    assert sum(scores[-500:]) / 500 >= 0.8
    assert max(behind for r in watcher.records for behind in r.lag) <= 1  # depth - 1


class Dying(Watcher):
    """An observer that takes back what dead workers had leased and restores what was saved last."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.recovered: list[Recovered] = []

    def died(self, worker: str) -> None:
        self.budget.release(worker)

    def restored(self, worker: str) -> Any | None:
        return self.saved.get(worker)

    def report(self, worker: str, record: Any) -> None:
        super().report(worker, record)
        if isinstance(record, Recovered):
            self.recovered.append(record)


@each_seed(5, normal=2)
def test_actors_whose_host_dies_come_back_and_the_others_go_on_meanwhile(seed: int) -> None:
    watcher = Dying(steps=4_000)
    crashes = [(0.5, "actors0", 12.0), (3.0, "actors1", 1.0), (4.0, "actors1", 0.5)]
    wired = IMPALA(hosts=3, actors=1, num_envs=3, depth=2).program(a_task(algorithm=VTrace()))
    simulation = Simulation(seed, FAR, Faults(crashes=crashes))
    simulation(wired, watcher)
    assert len(simulation.crashes) >= 2
    steps, learned = (sum(getattr(r, name) for r in watcher.records) for name in ("steps", "learned"))
    assert steps >= 4_000
    assert learned >= steps - 3 * 12  # at most one rollout of each crash is not learned from
    assert "learner" in watcher.saved["learn"]


@each_seed(5, normal=2)
@pytest.mark.parametrize("loading", [False, True], ids=["", "loader"])
def test_a_learner_whose_host_dies_goes_on_from_the_newest_parameters_of_an_actor(seed: int, loading: bool) -> None:
    watcher = Dying(steps=6_000)
    wired = IMPALA(hosts=2, actors=1, num_envs=3, depth=2, parallel_loading=loading).program(a_task(algorithm=VTrace()))
    Simulation(seed, FAR, Faults(crashes=[(2.0, "learner", 1.0)]))(wired, watcher)
    (told,) = watcher.recovered
    assert told.copied
    assert 0 <= told.optimizer < told.version < int(watcher.saved["learn"]["exchange"]["iteration"])
    assert sum(r.steps for r in watcher.records) >= 6_000


@each_seed(5, normal=2)
def test_a_learner_whose_host_dies_again_before_it_goes_on_is_offered_the_parameters_again(seed: int) -> None:
    # Restarted after 3 s, it waits a second for further offers; the copies on the actors' hosts stay as they are.
    watcher = Dying(steps=6_000)
    wired = IMPALA(hosts=2, actors=1, num_envs=3, depth=2).program(a_task(algorithm=VTrace()))
    simulation = Simulation(seed, FAR, Faults(crashes=[(2.0, "learner", 1.0), (3.5, "learner", 1.0)]))
    simulation(wired, watcher)
    assert len(simulation.crashes) == 2
    (told,) = watcher.recovered
    assert told.copied
    assert 0 <= told.optimizer < told.version < int(watcher.saved["learn"]["exchange"]["iteration"])


def test_a_learner_whose_host_has_all_actors_does_not_wait_for_copies_of_its_parameters() -> None:
    watcher = Dying(steps=200)
    simulation = Simulation(0, FAR, Faults(crashes=[(0.0, "learner", 0.5)]))
    simulation(IMPALA(actors=1, num_envs=3, depth=2).program(a_task(algorithm=VTrace())), watcher)
    (told,) = watcher.recovered
    assert not told.copied
    assert simulation.now < 5
    assert sum(r.steps for r in watcher.records) >= 200


class Keeping(Dying):
    """Asks each learner for its state at its fifth claim, and at its first one after its host has died."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.claims, self.kept = Counts[str](), dict[str, list[Any]]()

    def claim(self, worker: str, steps: int, *, idle: bool = True) -> int | Answer:
        if worker.startswith("learn"):
            self.claims[worker] += 1
            if self.claims[worker] == 5:
                return Answer.SAVE
        return super().claim(worker, steps, idle=idle)

    def died(self, worker: str) -> None:
        super().died(worker)
        self.claims[worker] = 4

    def save(self, worker: str, state: Any) -> None:
        super().save(worker, state)
        self.kept.setdefault(worker, []).append(deepcopy(state))


@dataclass(frozen=True)
class Followed(VTrace):
    """V-trace. Keeps the parameters after each step of each network that learns."""

    after: ClassVar[dict[int, list[Any]]] = {}  # network -> its parameters

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        yield from super().losses(model, batch, rng)
        self.after.setdefault(id(model), []).append({name: each.clone() for name, each in model.state_dict().items()})


@pytest.mark.parametrize("learners", [1, 2])
@pytest.mark.parametrize("seed", range(2))
def test_a_killed_learner_has_an_actor_s_newest_parameters_and_all_else_of_the_checkpoint(
    seed: int, learners: int
) -> None:
    Followed.after.clear()
    watcher = Keeping(steps=2_000)
    wired = IMPALA(hosts=2, learners=learners, actors=1, num_envs=3 * learners, depth=2).program(
        a_task(algorithm=Followed())
    )
    Simulation(seed, FAR, Faults(crashes=[(1.0, "learner", 1.0)]))(wired, watcher)
    parameters, *_ = Followed.after.values()  # of a learner, before the crash
    assert len(watcher.kept) == learners
    for saved, restored, last in watcher.kept.values():
        version = restored["exchange"]["iteration"]
        assert saved["exchange"]["iteration"] < version <= len(parameters)
        assert differences(restored["learner"]["model"], parameters[version - 1]) == []
        kept, found = ({**state["learner"], "model": {}} for state in (saved, restored))
        assert differences(found, kept) == []  # optimizer, random stream and counters
        assert last["learner"]["updates"] - kept["updates"] == last["exchange"]["iteration"] - version > 0


def test_learners_end_at_the_same_version_although_one_has_fewer_batches() -> None:
    watcher = end_of(a_task(algorithm=VTrace()), Simulation(0, FAR), steps=300, hosts=2, learners=2, num_envs=6)
    first, second = (watcher.saved[f"learn[{rank}]"] for rank in range(2))
    assert first["learner"]["updates"] != second["learner"]["updates"]  # of 25 rollouts, one has a batch more
    assert differences(first["exchange"], second["exchange"]) == []
    assert differences(first["learner"]["model"], second["learner"]["model"]) == []


@each_seed(5, normal=2)
def test_all_learners_of_a_host_that_dies_go_on_from_the_same_version(seed: int) -> None:
    watcher = Dying(steps=6_000)
    task = a_task(algorithm=VTrace(), normalize_observations=True, normalize_returns=True)
    wired = IMPALA(hosts=2, learners=2, actors=1, num_envs=6, depth=2).program(task)
    Simulation(seed, FAR, Faults(crashes=[(2.0, "learner", 1.0)]))(wired, watcher)
    (told,) = watcher.recovered
    assert told.copied
    assert min(behind for r in watcher.records for behind in r.lag) >= 0
    first, second = (watcher.saved[f"learn[{rank}]"] for rank in range(2))
    assert first["exchange"]["iteration"] > told.version > told.optimizer
    assert differences(first["exchange"], second["exchange"]) == []
    assert differences(first["learner"]["model"], second["learner"]["model"]) == []


@dataclass(frozen=True)
class Remembering(VTrace):
    """V-trace. Keeps the size of the state of each trajectory that begins within an episode."""

    sizes: ClassVar[list[float]] = []

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        self.sizes.extend(batch.state["hidden"].abs().sum(1)[~batch.begins[0]].tolist())
        return super().losses(model, batch, rng)


def test_memory_reaches_the_learner_through_the_queue() -> None:
    # Episodes of 4 steps in rollouts of 5: three of four rollouts begin within an episode.
    Remembering.sizes.clear()
    env, algorithm = Recall(delay=3, cues=2), Remembering(gae_lambda=0.9)
    task = a_task(env, algorithm, rate=5e-3, rollout_length=5, memory="gru", memory_units=16)
    watcher = end_of(task, Simulation(1), steps=20_000, actors=2, num_envs=16, depth=2)
    scores = [episode.score for record in watcher.records for episode in record.episodes]
    assert sum(scores[-300:]) / 300 >= 0.95  # one in two without memory
    assert len(Remembering.sizes) > 0.7 * 20_000 / 5
    assert min(Remembering.sizes) > 0


@dataclass(frozen=True)
class CheckedPictures(Checked):
    """`Checked` on pictures, at any learning rate: without lag the learner's network is the one that acted."""

    within: ClassVar[list[bool]] = []  # of each batch: whether it begins within an episode

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        check_policy(model, batch, self.gamma)
        self.within.append(not bool(batch.begins[0].any()))
        return VTrace.losses(self, model, batch, rng)


def test_the_deep_network_learns_with_memory() -> None:
    CheckedPictures.within.clear()
    config = configure(
        "impala", env="catch-pixels", algorithm=CheckedPictures(), network="resnet", memory="lstm", memory_units=8,
        rollout_length=4, actors=1, num_envs=2, depth=1, threads=1, precision="fp32",
    )  # fmt: skip
    first, last = Watcher(steps=0), Watcher(steps=48)
    for watcher in (first, last):
        threads(program(config), watcher)
    assert CheckedPictures.within == [False, *[True] * 5]  # 6 batches of 8 steps; episodes of 9
    before, after = (watcher.saved["learn"]["learner"]["model"] for watcher in (first, last))
    unchanged = [name for name in before if torch.equal(before[name], after[name])]
    assert all(name.startswith("centre.") for name in unchanged)  # the background


@launchers
@pytest.mark.parametrize("learners", [1, 2])
@pytest.mark.parametrize("name", ["vtrace", "appo"])
def test_a_restored_learner_is_the_one_that_was_saved(launch: Launcher, name: str, learners: int) -> None:
    # The resumed run has no steps left: its learners are saved as they were restored.
    algorithm = VTrace() if name == "vtrace" else AsyncPPO(epochs=2, num_minibatches=2, target_period=3)
    task = a_task(algorithm=algorithm)
    shape: dict[str, Any] = {"learners": learners, "actors": 1, "num_envs": 4, "depth": 2}
    saved = end_of(task, launch, steps=96, **shape).saved
    again = end_of(task, launch, saved, steps=0, **shape).saved
    assert len(again) == learners
    assert differences(again, saved) == []
    assert all(state["learner"]["updates"] > 0 for state in again.values())
    further = Watcher(saved, steps=96 + 16, acted=96)
    launch(IMPALA(**shape).program(task), further)
    assert sum(state["learner"]["steps"] for state in further.saved.values()) == 96 + 16


@pytest.mark.parametrize("algorithm", ["vtrace", "appo"])
def test_a_resumed_run_goes_on_with_the_same_learner_and_acts_what_was_lost(algorithm: str, tmp_path: Path) -> None:
    run = gossamer.train(
        "impala", env="catch", algorithm=algorithm, steps=6_000, num_envs=8, actors=2, depth=4, rollout_length=10,
        stop_at_return=-0.9, run_dir=tmp_path / "run",
    )  # fmt: skip
    steps, learned = run.result["steps"], run.result["learned"]
    assert learned <= steps < 6_000
    again = gossamer.resume(tmp_path / "run")
    assert again.result["ended"] == "all steps done"
    assert 6_000 <= again.result["steps"] == again.result["learned"] < 6_080
    log = (tmp_path / "run" / LOG).read_text()
    assert (f"{steps - learned:,} steps that were in the queue" in log) == (steps > learned)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["steps"] for row in rows] == sorted(row["steps"] for row in rows)


def test_the_result_tells_how_old_policies_were(tmp_path: Path) -> None:
    run = gossamer.train("impala", env="catch", steps=4_000, num_envs=8, depth=3, run_dir=tmp_path / "run")
    lag = run.result["policy_lag"]
    assert 0 <= lag["mean"] <= lag["max"] <= 2
    assert sum(lag["trajectories"].values()) == run.result["learned"] / 5
    row = json.loads((run.directory / "metrics.jsonl").read_text().splitlines()[-1])
    assert {"policy_lag_mean", "policy_lag_max", "queue", "time/actors_wait", "time/learner_waits"} <= row.keys()


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"num_envs": 2, "actors": 3}, "--num-envs 2: fewer environments than --actors 3"),
        ({"num_envs": 3, "learners": 2}, "--num-envs 3: must be a multiple of --learners 2:"),
        ({"num_envs": 10, "actors": 4}, "--num-envs 10: must be a multiple of --actors 4"),
        ({"num_envs": 9, "learners": 2, "actors": 4}, "--num-envs 9: must be a multiple of --learners 2 x --actors 4"),
        ({"reuse": 3, "depth": 3}, r"--reuse 3: needs --depth 4 or more \(now 3\)"),
        ({"replay_share": 1.0}, "--replay-share 1.0: must be below 1"),
        ({"replay_share": -0.1}, "--replay-share -0.1: must be at least 0"),
        ({"algorithm": "a2c"}, "--algorithm a2c: on-policy, .*; use vtrace or appo"),
        ({"algorithm": "ppo"}, "--algorithm ppo: on-policy, .*; use vtrace or appo"),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["impala", "appo"])
def test_options_that_cannot_be_are_refused(name: str, given: dict[str, Any], what: str) -> None:
    with pytest.raises(UserError, match=what):
        program(configure(name, env="catch", **given))


@options
class Own(A2C):
    """An algorithm of a user's own."""


@options
class OwnForOlder(A2C):
    """One that says that its losses correct for older batches."""

    on_policy = False


@pytest.mark.parametrize("name", ["impala", "appo"])
def test_an_own_algorithm_must_say_that_it_corrects_for_older_batches(name: str) -> None:
    with pytest.raises(UserError, match="--algorithm own: on-policy"):
        program(configure(name, env="catch", algorithm=Own()))
    assert program(configure(name, env="catch", algorithm=OwnForOlder())).workers


def test_each_actor_gets_a_core_and_enough_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, envs, actors in ((1, 32, 1), (2, 32, 1), (4, 32, 2), (9, 32, 8), (128, 32, 8), (5, 12, 3), (8, 7, 1)):
        monkeypatch.setattr(sys.modules["gossamer.architectures.impala"], "cores", lambda cores=cores: cores)
        wired = program(configure("impala", env="catch", num_envs=envs, threads=1))
        (acting,) = [worker for worker in wired.workers if worker.name == "act"]
        assert (acting.copies, role(acting).envs) == (actors, Envs(envs // actors))


def test_the_asynchronous_algorithm_of_each_architecture_is_the_default() -> None:
    assert isinstance(configure("impala", env="catch").algorithm, VTrace)
    assert isinstance(configure("appo", env="catch").algorithm, AsyncPPO)
