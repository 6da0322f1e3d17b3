"""A policy is its network under its algorithm, and as new as its source makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from some_parts import a_network, a_task
from torch import Tensor, nn

from gossamer.algorithms import A2C
from gossamer.data import Action, Tree
from gossamer.envs.toy import Catch
from gossamer.exchange import AloneLink
from gossamer.nn.torsos import mlp, nature
from gossamer.policy import NetworkPolicy, OwnNetwork, Replica, Seats, build
from gossamer.spaces import Discrete, Spec
from gossamer.system.machine import use_threads


def a_policy(model: nn.Module, link: AloneLink, *, greedy: bool = False) -> NetworkPolicy:
    source = OwnNetwork(model, link)
    return NetworkPolicy(model, A2C(), torch.Generator().manual_seed(1), greedy, source)


def test_it_answers_what_its_model_does() -> None:
    model, obs = a_network((4,), Discrete(3), mlp), torch.randn(7, 4)
    policy = a_policy(model, AloneLink(), greedy=True)
    answer, state = policy(obs, {})
    expected, value = model(obs)
    assert torch.equal(answer.action, expected.mode())
    assert torch.equal(answer.parameters, expected.parameters)
    assert answer.log_prob is None  # the actor computes it
    assert torch.equal(answer.value, value)
    assert torch.equal(policy.value(obs, {}), value)
    assert state == {}


def test_it_draws_from_its_own_stream() -> None:
    model, obs = a_network((4,), Discrete(3), mlp), torch.randn(20, 4)
    one, other = a_policy(model, AloneLink()), a_policy(model, AloneLink())
    first = one(obs, {})[0].action
    assert not torch.equal(one(obs, {})[0].action, first)
    torch.manual_seed(99)
    assert torch.equal(other(obs, {})[0].action, first)


def test_its_version_is_its_exchange_s() -> None:
    assert a_policy(a_network((4,), Discrete(3), mlp), AloneLink(version=7)).refresh(0) == 7


class Epsilon(A2C):
    """Chooses one action, whose number is the position, in all environments but the first."""

    def exploring(self, position: int, envs: Sequence[int], total: int, version: int) -> Fixed:
        return Fixed([position if env else 0 for env in envs])


@dataclass(frozen=True)
class Fixed:
    """Always the same actions."""

    actions: list[int]

    def act(self, model: nn.Module, obs: Tensor, state: Tree, rng: torch.Generator, **more: Any) -> tuple[Action, Tree]:
        zeros = torch.zeros(len(obs))
        return Action(torch.tensor(self.actions), zeros, torch.zeros(len(obs), 3), zeros), state


def test_it_acts_as_the_algorithm_explores_where_the_run_is() -> None:
    model, obs = a_network((4,), Discrete(3), mlp), torch.randn(2, 4)
    rng = torch.Generator().manual_seed(1)
    one, other = (NetworkPolicy(model, Epsilon(), rng, seats=Seats(range(i, i + 2), 4)) for i in (0, 2))
    for position in (2, 1):
        assert one.refresh(position) == other.refresh(position) == 0
        assert one(obs, {})[0].action.tolist() == [0, position]
        assert other(obs, {})[0].action.tolist() == [position, position]


def test_a_replica_takes_its_seats_among_all_actors() -> None:
    task, spec = a_task(), Catch().make(1).spec
    own = OwnNetwork(build(task, spec), AloneLink(version=3))
    policy = Replica().join(SimpleNamespace(rank=2, copies=5, restarts=0), task, spec, 4, own)  # type: ignore[arg-type]
    assert (policy.model, list(policy.seats.indices), policy.seats.total) == (own.model, [8, 9, 10, 11], 20)
    assert policy.refresh(0) == policy.version == 3


def test_initial_parameters_are_the_same_with_any_number_of_threads() -> None:
    task, spec = a_task(torso=nature), Spec((4, 84, 84), np.dtype(np.uint8), Discrete(6))
    found = []
    try:
        for threads in (1, 2):
            use_threads(threads)
            found.append(build(task, spec).state_dict())
            assert torch.get_num_threads() == threads
    finally:
        use_threads(1)
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
