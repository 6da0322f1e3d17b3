"""Train with your own network: a function from the observation's shape to a torch module, named as module:factory.

    cd examples
    gossamer train paac --env catch --network own_network:residual --steps 60000 --run-dir runs/residual

or from Python, as at the end of this file: python examples/own_network.py
"""

from __future__ import annotations

import math
import sys

from torch import Tensor, nn


class Residual(nn.Module):
    """x + f(x)."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(units), nn.Linear(units, units), nn.ReLU(), nn.Linear(units, units))

    def forward(self, x: Tensor) -> Tensor:
        """[N, F] -> [N, F]."""
        result: Tensor = x + self.inner(x)
        return result


def residual(obs_shape: tuple[int, ...]) -> nn.Module:
    """A torso: [N, *O] -> [N, F]. The algorithm adds its heads (policy, value)."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(obs_shape), 64), Residual(64), nn.ReLU())


if __name__ == "__main__":
    import gossamer

    directory = sys.argv[1] if len(sys.argv) > 1 else "runs/residual"
    run = gossamer.train("paac", env="catch", network="own_network:residual", steps=60_000, run_dir=directory)
    print(f"mean return {gossamer.evaluate(run.directory, episodes=10).mean_return:.2f}, 1 is the best")
