"""A replica is its model under its algorithm, and as new as its exchange makes it."""

from __future__ import annotations

import torch
from some_parts import a_network
from torch import nn

from gossamer.algorithms import A2C
from gossamer.exchange import AloneLink
from gossamer.policy import Replica
from gossamer.spaces import Discrete
from gossamer.torsos import mlp


def replica(model: nn.Module, link: AloneLink, *, greedy: bool = False) -> Replica:
    return Replica(model, A2C(), link, torch.Generator().manual_seed(1), greedy=greedy)


def test_a_replica_answers_what_its_model_does() -> None:
    model, obs = a_network((4,), Discrete(3), mlp), torch.randn(7, 4)
    policy = replica(model, AloneLink(), greedy=True)
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
    one, other = replica(model, AloneLink()), replica(model, AloneLink())
    first = one(obs, {})[0].action
    assert not torch.equal(one(obs, {})[0].action, first)
    torch.manual_seed(99)
    assert torch.equal(other(obs, {})[0].action, first)


def test_its_version_is_its_exchange_s() -> None:
    assert replica(a_network((4,), Discrete(3), mlp), AloneLink(version=7)).refresh() == 7
