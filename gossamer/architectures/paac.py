"""PAAC: parallel advantage actor-critic (Clemente, Castejon and Chandra 2017, fig. 1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from gossamer.architectures.options import ENV_WORKERS, NUM_ENVS
from gossamer.exchange import Alone
from gossamer.experience import own_experience
from gossamer.loops import Envs, act_and_learn
from gossamer.policy import Replica
from gossamer.presets.layers import Layer
from gossamer.program import Program
from gossamer.system.options import options
from gossamer.task import Task


def large_steps_with_memory(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Tuned on Recall, which A2C then learns within 200,000 steps (0.98 or more with three seeds): long rollouts of one
    pass make few updates. With a rate of 3e-3 or a lambda of 0.9 returns stay at chance with some seeds."""
    return {} if values["memory"] == "none" else {"num_envs": 16, "learning_rate": 5e-3, "gae_lambda": 1.0}


@options
class PAAC:
    """One learner with `num_envs` (n_e) environments in lock-step, stepped by `env_workers` (n_w) workers: threads for
    Atari (0: one per core), processes for Gymnasium (0 or 1: stepped by the learner's thread).

    At every time step the policy evaluates all n_e observations in one forward pass. Every T steps, the learner trains
    on a batch of n_e * T steps. Behaviour and target policy are identical, so any on-policy algorithm can be used."""

    num_envs: int = NUM_ENVS(32)
    env_workers: int = ENV_WORKERS(0)

    def program(self, task: Task) -> Program:
        p = Program("paac")
        with p.host("machine", cpus=max(1, self.env_workers), gpus=task.gpus):
            p.worker(act_and_learn, saved=True)(
                task,
                Replica(),
                own_experience(task.algorithm),
                Alone(),
                envs=Envs(self.num_envs, self.env_workers),
            )
        return p

    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("tuned on Pong: few environments", {"num_envs": 16}, kind="pixels", beside=("ppo", "appo", "vtrace")),
        Layer("2,048 steps between updates", {"num_envs": 16}, kind="continuous", beside=("ppo", "appo")),
        Layer(
            "tuned on Catch and CartPole-v1: its batches are twice those of a learner of gala or pala",
            {"learning_rate": 2e-3},
            (large_steps_with_memory,),
            kind="vector",
            beside=("a2c",),
        ),
        Layer(
            "PAAC as published: the settings of its code, which differ from the paper in clip, entropy and steps (see "
            "docs)",
            {
                "steps": 80_000_000,
                "rollout_length": 5,
                "num_envs": 32,
                "env_workers": 8,
                "gae_lambda": 1.0,
                "value_coef": 0.25,
                "entropy_coef": 0.02,
                "loss_scale": 5.0,
                "network": "nips",
                "input": "unit",
                "initialization": "uniform",
                "optimizer": "rmsprop-tf",
                "decay": 0.99,
                "epsilon": 0.1,
                "learning_rate": 0.0007 * 32,
                "anneal_steps": 80_000_000,
                "final_fraction": 0.0,
                "max_grad_norm": 3.0,
            },
            preset="paper",
            beside=("a2c",),
        ),
    )
