"""How a recurrent state lines up with observations, rewards and resets, when acting and when learning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from some_parts import a_task, sharpen
from torch import Tensor, nn
from torch.testing import assert_close

from gossamer.algorithms import PPO
from gossamer.algorithms.base import evaluate, evaluate_to_end, initial_state
from gossamer.algorithms.minibatches import minibatches
from gossamer.data import Action, Step, Trajectory, Tree
from gossamer.envs.base import VectorEnv
from gossamer.envs.toy import Counter, Recall
from gossamer.exchange import AloneLink
from gossamer.nn.memory import reset
from gossamer.nn.networks import ActorCritic
from gossamer.policy import NetworkPolicy
from gossamer.workers.actor import Actor
from gossamer.workers.clock import Clock
from gossamer.workers.learner import Learner

GAMMA = 0.5


@dataclass
class Counts:
    """A policy that counts its steps in its state, and whose value is 100 + that count. On Counter's observations [age,
    episode, environment] the count must always equal the age."""

    wrong: int = 0
    version: int = 0

    def refresh(self, position: int) -> int:
        return self.version

    def state_dict(self) -> Tree:
        return {}

    def close(self) -> None: ...

    def initial_state(self, num_envs: int) -> Tree:
        return {"count": torch.zeros(num_envs, 1)}

    def __call__(self, obs: Tensor, state: Tree) -> tuple[Action, Tree]:
        self.wrong += int((state["count"][:, 0] != obs[:, 0]).sum())
        none = torch.zeros(len(obs))
        return Action(none.long(), none, obs, self.value(obs, state)), {"count": state["count"] + 1}

    def recorded(self, state: Tree) -> Tree:
        return state

    def value(self, obs: Tensor, state: Tree) -> Tensor:
        self.wrong += int((state["count"][:, 0] != obs[:, 0]).sum())
        return 100.0 + state["count"][:, 0]


def acted(env: VectorEnv, rollouts: int, length: int) -> tuple[Counts, list[Trajectory]]:
    policy, found = Counts(), []
    actor = Actor(env, policy, gamma=GAMMA, seed=0, clock=Clock())
    for _ in range(rollouts):
        shape, state = env.spec.obs_shape, policy.initial_state(env.num_envs)
        slot = Trajectory.empty(length, env.num_envs, shape, torch.float32, state=state)
        actor.unroll(slot)
        found.append(slot)
    return policy, found


@pytest.mark.parametrize("truncate", [False, True])
def test_the_state_is_that_of_the_episode_across_rollouts(truncate: bool) -> None:
    # Episodes of 4 steps in rollouts of 3: every alignment of the two occurs within 4 rollouts.
    policy, slots = acted(Counter(4, truncate).make(2), 8, 3)
    assert policy.wrong == 0
    for slot in slots:
        assert torch.equal(slot.begins, slot.obs[..., 0] == 0)  # an episode begins where its age is 0
        assert torch.equal(slot.state["count"][:, 0], slot.obs[0, :, 0])
        assert torch.equal(slot.value, 100.0 + slot.obs[..., 0])


def test_a_truncated_episode_is_valued_with_its_own_state() -> None:
    # At age 3 the reward is 3, and the value of the final observation (age 4) 104: 3 + 0.5 * 104 = 55.
    policy, (slot,) = acted(Counter(4, truncate=True).make(1), 1, 6)
    assert policy.wrong == 0
    assert slot.reward[:, 0].tolist() == [0, 1, 2, 55, 0, 1]


class Lives:
    """Counter in which every second step loses a life: `terminated` without `over`."""

    def __init__(self) -> None:
        self._env, self.num_envs = Counter(6).make(1), 1
        self.spec, self._steps = self._env.spec, 0

    def reset(self, seed: int) -> np.ndarray:
        return self._env.reset(seed)

    def step(self, action: np.ndarray) -> Step:
        step = self._env.step(action)
        self._steps += 1
        lost = np.full(1, self._steps % 2 == 0)
        return Step(step.obs, step.reward, step.score, step.terminated | lost, step.truncated, step.over, None)

    def frames(self) -> np.ndarray:
        return self._env.frames()

    def close(self) -> None:
        pass


def test_a_lost_life_zeroes_the_discount_and_keeps_the_memory() -> None:
    policy, (slot,) = acted(Lives(), 1, 8)
    assert policy.wrong == 0
    assert slot.begins[:, 0].int().tolist() == [1, 0, 0, 0, 0, 0, 1, 0, 0]
    assert slot.discount[:, 0].tolist() == [0.5, 0, 0.5, 0, 0.5, 0, 0.5, 0]


def a_recurrent_learner(rollout: int = 5) -> tuple[Learner, VectorEnv, Trajectory]:
    env = Recall(3).make(6)
    task = a_task(Recall(3), PPO(epochs=2, num_minibatches=3), rollout_length=rollout, memory="lstm", memory_units=8)
    learner = Learner(task, env.spec)
    state = initial_state(learner.model, env.num_envs)
    return learner, env, Trajectory.empty(rollout, env.num_envs, env.spec.obs_shape, torch.float32, state=state)


def test_learning_evaluates_what_acting_evaluated() -> None:
    # The first rollout ends within an episode (of 4 steps), so that the second starts with a state that is not zero.
    learner, env, slot = a_recurrent_learner()
    replica = NetworkPolicy(learner.model, learner.task.algorithm, torch.Generator())
    actor = Actor(env, replica, gamma=GAMMA, seed=0, clock=Clock())
    for _ in range(3):
        actor.unroll(slot)
        policy, value = evaluate(learner.model, slot)
        assert_close(value, slot.value[:-1].flatten())
        assert_close(policy.log_prob(slot.action.flatten()), slot.behaviour.flatten())
    assert slot.state["hidden"].abs().sum() > 0


def test_minibatches_are_whole_sequences_and_each_environment_once_per_epoch() -> None:
    learner, _, slot = a_recurrent_learner()
    algorithm = learner.task.algorithm
    assert isinstance(algorithm, PPO)
    found = minibatches(learner.model, slot, torch.Generator(), count=algorithm.num_minibatches)
    whole = [index.view(5, -1) for index, _, _ in found]
    assert [tuple(index.shape) for index in whole] == [(5, 2)] * 3
    for index in whole:  # step t of environment b is number 6 t + b
        assert torch.equal(index % 6, index[0].expand(5, -1))
        assert torch.equal(index // 6, torch.arange(5).unsqueeze(1).expand(5, 2))
    assert sorted(torch.cat([index[0] for index in whole]).tolist()) == list(range(6))


class Off(nn.Module):
    """A memory that passes its inputs on, and counts the steps of the episode in its state."""

    def initial_state(self, num_envs: int) -> Tree:
        return {"count": torch.zeros(num_envs, 1)}

    def forward(self, features: Tensor, state: Tree, begins: Tensor) -> tuple[Tensor, Tree]:
        for each in begins:
            state = {"count": reset(state, each)["count"] + 1}
        return features, state


def parameters_after(memory: nn.Module | None, rollouts: int = 30) -> dict[str, Tensor]:
    """Train A2C on Recall; episodes of 4 steps, rollouts of 5."""
    env = Recall(3).make(6)
    learner = Learner(a_task(Recall(3), rollout_length=5), env.spec)
    assert isinstance(learner.model, ActorCritic)
    learner.model.memory = memory  # type: ignore[assignment]
    replica = NetworkPolicy(learner.model, learner.task.algorithm, torch.Generator().manual_seed(0))
    actor = Actor(env, replica, gamma=GAMMA, seed=0, clock=Clock())
    state = initial_state(learner.model, env.num_envs)
    slot = Trajectory.empty(5, env.num_envs, env.spec.obs_shape, torch.float32, state=state)
    for rollout in range(rollouts):
        actor.unroll(slot)
        learner.update(slot, AloneLink(), 30 * rollout)
    return dict(learner.model.named_parameters())


def test_training_with_memory_switched_off_equals_training_without_to_the_bit() -> None:
    plain, off = parameters_after(None), parameters_after(Off())
    assert plain.keys() == off.keys()
    for name, values in plain.items():
        assert torch.equal(off[name], values), name


def unlike_environments() -> tuple[Learner, Trajectory]:
    """A rollout in which each environment has its own observations, actions, state and resets, and a policy that
    depends on all of them."""
    learner, _, slot = a_recurrent_learner()
    sharpen(learner.model)
    for each in (slot.obs, *slot.state.values()):
        each.copy_(torch.randn(each.shape))
    slot.action.copy_(torch.randint(2, slot.action.shape))
    slot.begins.copy_(torch.arange(6).unsqueeze(1) == torch.arange(6))  # an episode begins in environment t at time t
    return learner, slot


def test_the_outputs_of_a_minibatch_are_those_of_its_environments() -> None:
    learner, slot = unlike_environments()
    policy, value = evaluate(learner.model, slot)
    log_prob, action = policy.log_prob(slot.action.flatten()), slot.action.flatten()
    assert log_prob.view(5, 6).std(1).min() > 0.02  # environments differ at each step
    for index, its_policy, its_value in minibatches(learner.model, slot, torch.Generator().manual_seed(0), count=3):
        assert_close(its_policy.log_prob(action[index]), log_prob[index])
        assert_close(its_value, value[index])


def test_some_environments_are_evaluated_as_within_the_whole_rollout() -> None:
    learner, slot = unlike_environments()
    chosen = torch.tensor([4, 1])
    (policy, value), (some_policy, some_value) = (evaluate_to_end(learner.model, slot, of) for of in (None, chosen))
    assert_close(some_value, value[:, chosen])
    assert_close(some_policy.parameters, policy.parameters.view(5, 6, -1)[:, chosen].flatten(0, 1))
