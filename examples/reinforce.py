"""Train with your own algorithm: REINFORCE with a baseline (Williams 1992; Sutton and Barto 2018, section 13.4).

cd examples
gossamer train paac --env catch --algorithm reinforce:Reinforce --rollout-length 9 --steps 100000
gossamer train gala --env catch --algorithm reinforce:Reinforce --help    # its options
python reinforce.py                                                       # the same from Python
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch
from torch import nn

from gossamer.algorithms.base import PolicyGradient, evaluate, observe
from gossamer.algorithms.losses import Loss
from gossamer.algorithms.returns import n_step
from gossamer.data import Trajectory
from gossamer.system.options import option, options


@options
class Reinforce(PolicyGradient):
    """One gradient step for each rollout, with A = G - V(x). The value head is the baseline."""

    gamma: float = option("Discount.", 0.99, least=0, most=1, measure="per step")
    value_coef: float = option("Weight of the baseline's loss.", 0.1, least=0)

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        target = n_step(batch.reward, batch.discount, batch.value[-1])  # [T, B]
        policy, value = evaluate(model, batch)
        advantage = target.flatten() - value
        policy_loss = -(advantage.detach() * policy.log_prob(batch.action.flatten(0, 1))).mean()
        yield Loss(policy_loss + self.value_coef * advantage.square().mean(), {"policy_loss": policy_loss.detach()})
        observe(model, batch, target)  # for --normalize-observations


if __name__ == "__main__":
    import gossamer

    directory = sys.argv[1] if len(sys.argv) > 1 else "runs/reinforce"
    options = {"rollout_length": 9, "learning_rate": 0.003, "steps": 100_000}
    run = gossamer.train("paac", env="catch", algorithm=Reinforce(gamma=0.95), run_dir=directory, **options)
    print(f"mean return {gossamer.evaluate(run.directory, episodes=10).mean_return:.2f}, 1 is the best")
