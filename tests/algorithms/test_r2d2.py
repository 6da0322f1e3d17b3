"""R2D2: targets and priorities of sequences against worked-out numbers, acting with a memory, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from some_values import Counts
from torch import Tensor
from torch.testing import assert_close

from gossamer.algorithms.base import Prioritized, ReplayPlan
from gossamer.algorithms.r2d2 import PAPER, R2D2
from gossamer.algorithms.rescaling import rescale, unscale
from gossamer.algorithms.sequences import SequenceErrors
from gossamer.algorithms.target import add_target
from gossamer.config.resolve import configure
from gossamer.data import Final, Trajectory
from gossamer.nn.networks import Network, QNetwork
from gossamer.nn.torsos import mlp
from gossamer.spaces import Box, Discrete, Spec
from gossamer.system.errors import UserError

SPEC = Spec((1,), np.dtype(np.float32), Discrete(3))
RNG = torch.Generator()
EPSILON = 1e-3
h, inverse = partial(rescale, epsilon=EPSILON), partial(unscale, epsilon=EPSILON)


# Rows are counts 0, 1, 2, ..: what the network prefers, and what its target network says
ONLINE = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
OLDER = [[9.0, 9.0], [90.0, 10.0], [20.0, 90.0], [90.0, 30.0], [40.0, 90.0], [90.0, 50.0]]


def networks() -> Counts:
    """The network with its target network."""
    model = Counts(OLDER, h)
    add_target(model)
    target: Any = model.target
    target.followed(model, 10**9)  # copies OLDER now, and not again
    with torch.no_grad():
        model.returns.copy_(torch.tensor(ONLINE))
    return model


def sequence(steps: int, *, first: int = 0) -> Trajectory:
    """One sequence from a state that has counted `first` steps of its episode, with discount 0.5. All rewards are 0,
    and all actions are 0."""
    slot = Trajectory.empty(steps, 1, (1,), torch.float32, state={"count": torch.full((1, 1), float(first))})
    slot.begins[0] = first == 0
    slot.discount.fill_(0.5)
    return replace(slot, mask=torch.ones(steps, 1, dtype=torch.bool))


def errors(algorithm: R2D2, batch: Trajectory) -> Tensor:
    """The largest |delta| [W] of each sequence."""
    (loss,) = replace(algorithm, priority_eta=1.0).losses(networks(), batch, RNG)
    assert loss.priority is not None
    return loss.priority.detach()


def test_the_target_is_rescaled_and_bootstraps_by_the_action_that_the_network_prefers() -> None:
    """One step from count 1, Q = h(0): the reward 3, then the value 20 of count 2 by action 0; its own best is 90."""
    batch = sequence(1, first=1)
    batch.reward.fill_(3.0)
    algorithm = R2D2(gamma=0.5, n_step=1, burn_in=0, sequence_length=1, target_period=10**9)
    assert_close(errors(algorithm, batch), h(torch.tensor([3.0 + 0.5 * 20])))
    assert_close(errors(replace(algorithm, double=False), batch), h(torch.tensor([3.0 + 0.5 * 90])))


def test_the_last_steps_of_a_sequence_bootstrap_from_its_last_observation() -> None:
    """Two of three steps are burn-in, so that the third one counts: its target has one reward, though n_step is 3. With
    one burn-in step, the second has two rewards, and a larger error."""
    batch = sequence(3, first=1)
    batch.reward.copy_(torch.tensor([[1000.0], [4.0], [6.0]]))
    # x_3 has count 4: the network prefers action 0, which is worth 40. Counts 2 and 3 by action 0: h(1) and h(0)
    algorithm = R2D2(gamma=0.5, n_step=3, burn_in=2, sequence_length=1, target_period=10**9)
    assert_close(errors(algorithm, batch), h(torch.tensor([6.0 + 0.5 * 40])))
    earlier = h(torch.tensor([4.0 + 0.5 * 6 + 0.25 * 40])) - h(torch.tensor(1.0))
    (loss,) = replace(algorithm, burn_in=1, sequence_length=2, priority_eta=0.0).losses(networks(), batch, RNG)
    assert loss.priority is not None
    assert_close(loss.priority, (h(torch.tensor([26.0])) + earlier) / 2)


def test_a_sequence_that_begins_with_an_episode_is_trained_from_its_first_step() -> None:
    """The reward 1000 of the first step counts, though it is within the burn-in: count 0, then 10 at count 1."""
    batch = sequence(3, first=0)
    batch.reward[0] = 1000.0
    algorithm = R2D2(gamma=0.5, n_step=1, burn_in=2, sequence_length=1, target_period=10**9)
    assert_close(errors(algorithm, batch), h(torch.tensor([1000.0 + 0.5 * 10])))


def test_nothing_beyond_the_end_of_an_episode_is_in_a_target_or_trained() -> None:
    batch = sequence(3, first=1)
    batch.reward.copy_(torch.tensor([[2.0], [1000.0], [1000.0]]))
    batch.discount[0] = 0.0
    batch.begins[1] = True
    assert batch.mask is not None
    batch.mask[1:] = False
    algorithm = R2D2(gamma=0.5, n_step=3, burn_in=0, sequence_length=3, target_period=10**9)
    assert_close(errors(algorithm, batch), h(torch.tensor([2.0])))


@pytest.mark.parametrize(("double", "value"), [(True, 40.0), (False, 90.0)])
def test_a_truncated_episode_bootstraps_from_its_final_observation_with_its_state(double: bool, value: float) -> None:
    """The reward includes 0.5 * 14, as the policy that acted estimated it. After four steps the network prefers action
    0, which is worth 40; the target network's best is 90. Both are returns: nothing is rescaled twice."""
    batch = sequence(2, first=2)
    batch.reward.copy_(torch.tensor([[0.0], [3.0 + 7.0]]))
    batch.discount[1] = 0.0
    batch.begins[2] = True
    batch.finals.append(Final(1, 0, torch.zeros(1), {"count": torch.tensor([4.0])}, 7.0))
    algorithm = R2D2(gamma=0.5, n_step=1, burn_in=1, sequence_length=1, double=double, target_period=10**9)
    assert_close(errors(algorithm, batch), h(torch.tensor([3.0 + 0.5 * value])))


def test_a_priority_with_one_trained_step_is_its_error() -> None:
    batch = sequence(1, first=1)
    batch.reward.fill_(3.0)
    algorithm = R2D2(gamma=0.5, n_step=1, burn_in=0, sequence_length=1, target_period=10**9)
    for eta in (0.0, 0.9, 1.0):
        (loss,) = replace(algorithm, priority_eta=eta).losses(networks(), batch, RNG)
        assert loss.priority is not None
        assert_close(loss.priority, loss.parts["td_error"].unsqueeze(0))


def test_the_same_values_give_the_same_priorities_when_acting_and_when_learning() -> None:
    """Without a target network and with the values of the network itself, the first priority is that of the loss."""
    batch = sequence(6, first=0)
    batch.reward.copy_(torch.arange(6.0).unsqueeze(1))
    algorithm = R2D2(gamma=0.5, n_step=2, burn_in=2, sequence_length=4, target_period=0, double=False)
    model = Counts([[1.0, 2.0], [5.0, 0.0], [2.0, 2.0], [0.0, 8.0], [1.0, 0.0], [9.0, 0.0], [3.0, 4.0]], h)
    (loss,) = algorithm.losses(model, batch, RNG)
    plan = algorithm.replay_plan()
    assert plan.priority is not None
    value = model.returns.detach().amax(1, keepdim=True)
    chosen = model.returns.detach()[:6, :1]
    first = plan.priority.errors(batch.reward, batch.discount, value, chosen, batch.begins)
    assert loss.priority is not None
    assert_close(first, loss.priority)


def test_it_acts_with_its_state_and_reports_returns() -> None:
    algorithm, model = R2D2(epsilon_end=0.0), Counts([[0.0, 24.0], [99.0, 0.0]], h)
    obs, state = torch.zeros(2, 1), {"count": torch.tensor([[0.0], [1.0]])}
    answer, after = algorithm.act(model, obs, state, RNG)
    assert answer.action.tolist() == [1, 0]
    assert answer.chosen is not None
    for found in (answer.value, answer.chosen, algorithm.value(model, obs, state)):
        assert_close(found, torch.tensor([24.0, 99.0]))
    assert after["count"].tolist() == [[1.0], [2.0]]
    exploring = R2D2(epsilon_start=0.0, epsilon_steps=10).exploring(0, range(2), 2, 0)
    assert_close(exploring.act(model, obs, state, RNG)[0].value, torch.tensor([24.0, 99.0]))


def test_the_network_gives_returns_step_by_step() -> None:
    """What an exported network answers."""
    algorithm = R2D2()
    model = algorithm.model(SPEC, Network(mlp, memory="lstm", memory_units=8))
    assert isinstance(model, QNetwork)
    obs, state = torch.randn(4, 1), model.initial_state(4)
    policy, value, _ = model.step(obs, state, torch.zeros(4, dtype=torch.bool))
    assert_close(value, inverse(policy.parameters.amax(-1)))
    assert_close(value, algorithm.value(model, obs, state))


def test_it_is_given_sequences_and_draws_them_at_its_ratio() -> None:
    """1.5 trained steps for each environment step are 1.5 / 20 sequences."""
    algorithm = R2D2(
        sequence_length=20, burn_in=10, n_step=3, replay_ratio=1.5, buffer_size=999, batch_size=7, learning_starts=30
    )
    first = SequenceErrors(n_step=3, burn_in=10, eta=0.9, epsilon=1e-3)
    assert algorithm.replay_plan() == ReplayPlan(
        999,
        batch_size=7,
        window=30,
        samples_per_insert=0.075,
        learning_starts=30,
        priority=Prioritized(exponent=0.9, correction=0.6, errors=first),
        sequences=True,
    )
    assert replace(algorithm, priority_exponent=0.0).replay_plan().priority is None


def test_sizes_that_contradict_each_other_are_refused_in_a_line() -> None:
    with pytest.raises(UserError, match="--learning-starts 5000: must be at most --buffer-size 400"):
        _ = R2D2(buffer_size=400).replay_plan()
    with pytest.raises(UserError, match="--buffer-size 100: must be at least 120, --burn-in plus --sequence-length"):
        _ = R2D2(buffer_size=100, learning_starts=1).replay_plan()
    with pytest.raises(UserError, match="--n-step 4: must be at most 3, --burn-in plus --sequence-length"):
        _ = R2D2(n_step=4, burn_in=1, sequence_length=2).replay_plan()


def test_what_it_does_not_work_with_is_refused_in_a_line() -> None:
    network = Network(mlp, memory="gru")
    R2D2().check(SPEC, network, "some-env")

    def refused(spec: Spec = SPEC, **changed: Any) -> str:
        with pytest.raises(UserError) as error:
            R2D2().check(spec, replace(network, **changed), "some-env")
        return str(error.value)

    assert refused(memory="none") == "--memory none: r2d2 needs a memory; use --memory lstm, or --algorithm dqn"
    box = replace(SPEC, actions=Box((-1.0,), (1.0,)))
    assert refused(box).startswith("--algorithm r2d2: some-env has 1 continuous actions")
    for flag in ("normalize-returns", "normalize-observations"):
        told = refused(**{flag.replace("-", "_"): True})
        assert told == f"--{flag}: has no effect with --algorithm r2d2; leave it out"


def test_steps_are_in_two_sequences_by_default_and_in_one_at_least() -> None:
    config = configure("dqn", env="catch", algorithm="r2d2", sequence_length=16)
    assert config.run.rollout_length == 8
    with pytest.raises(UserError, match="--rollout-length 17: must be at most --sequence-length 16"):
        configure("dqn", env="catch", algorithm="r2d2", sequence_length=16, rollout_length=17)


def test_the_paper_s_settings_are_options() -> None:
    """An architecture may use them as a layer: every name is an option of some part."""
    given = {name: value for name, value in PAPER.items() if name not in ("network", "input")}
    optimizer = given.pop("optimizer")
    config = configure("dqn", env="pong", algorithm="r2d2", optimizer=optimizer, **given)
    assert config.algorithm.replay_plan().window == 120
