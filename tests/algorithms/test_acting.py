"""How actor-critics act: by their policy head, and by nothing else."""

from __future__ import annotations

import pytest
import torch
from some_parts import a_network
from torch import Tensor, nn

from gossamer.algorithms import A2C, PPO, Algorithm
from gossamer.nn.torsos import mlp
from gossamer.spaces import Discrete
from gossamer.spaces.distributions import Categorical

ALGORITHMS: list[Algorithm] = [A2C(), PPO()]


class Fixed(nn.Module):
    """Answers the same logits to everything; its value is the observation's sum."""

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.logits = torch.tensor(logits)

    def forward(self, obs: Tensor) -> tuple[Categorical, Tensor]:
        return Categorical(self.logits.expand(len(obs), -1)), obs.sum(1)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=["a2c", "ppo"])
def test_actions_follow_the_policy(algorithm: Algorithm) -> None:
    # logits ln 1, ln 2, ln 7: probabilities 0.1, 0.2, 0.7. Of 100,000 draws the share of the first has a standard
    # deviation of sqrt(0.09 / 1e5) = 0.00095, and the others' is below 0.0015: 0.006 is four of them.
    model = Fixed(torch.tensor([1.0, 2.0, 7.0]).log().tolist())
    obs = torch.arange(200_000.0).view(100_000, 2)
    answer, _ = algorithm.act(model, obs, {}, torch.Generator().manual_seed(0))
    shares = answer.action.bincount(minlength=3) / 100_000
    assert shares.tolist() == pytest.approx([0.1, 0.2, 0.7], abs=0.006)
    assert answer.parameters.shape == (100_000, 3)
    assert torch.equal(answer.value, obs.sum(1))
    assert torch.equal(algorithm.value(model, obs, {}), answer.value)


def test_actions_are_those_of_torch_multinomial() -> None:
    logits = torch.randn(64, 6)
    model = Fixed([0.0])
    ours, theirs = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    for _ in range(20):
        model.logits = logits = logits.roll(1, 0)
        action = A2C().act(model, torch.zeros(64, 2), {}, ours)[0].action
        assert torch.equal(action, torch.multinomial(logits.softmax(-1), 1, generator=theirs).squeeze(-1))


def test_the_same_stream_gives_the_same_actions() -> None:
    model, obs = Fixed([0.0, 0.0, 0.0]), torch.zeros(50, 2)

    def drawn(seed: int) -> Tensor:
        return A2C().act(model, obs, {}, torch.Generator().manual_seed(seed))[0].action

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def test_greedy_takes_the_likeliest_and_draws_nothing() -> None:
    rng = torch.Generator().manual_seed(0)
    before = rng.get_state()
    answer, _ = A2C().act(Fixed([0.1, 0.3, 0.2]), torch.zeros(4, 2), {}, rng, greedy=True)
    assert answer.action.tolist() == [1, 1, 1, 1]
    assert torch.equal(rng.get_state(), before)


def test_logits_that_are_nan_do_not_stop_acting() -> None:
    # The loss that follows is NaN too, and is reported with its step; see test_learner.
    action = A2C().act(Fixed([float("nan")] * 3), torch.zeros(4, 2), {}, torch.Generator())[0].action
    assert set(action.tolist()) <= {0, 1, 2}


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=["a2c", "ppo"])
def test_acting_records_no_gradients(algorithm: Algorithm) -> None:
    model = a_network((5,), Discrete(3), mlp)
    answer, _ = algorithm.act(model, torch.randn(2, 5), {}, torch.Generator())
    assert not any(
        t.requires_grad for t in (answer.parameters, answer.value, algorithm.value(model, torch.randn(2, 5), {}))
    )
