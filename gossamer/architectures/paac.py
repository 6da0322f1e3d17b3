"""PAAC: parallel advantage actor-critic (Clemente, Castejon and Chandra 2017, fig. 1)."""

from __future__ import annotations

from gossamer.exchange import Alone
from gossamer.loops import act_and_learn
from gossamer.program import Program
from gossamer.task import Task


def paac(task: Task, *, num_envs: int = 32, env_workers: int = 8, gpus: float = 0) -> Program:
    """One copy of the parameters; `num_envs` (n_e) environments in lock-step; `env_workers` (n_w) that step them:
    threads for Atari (0: one for each core), processes for Gymnasium (0: none, they are stepped in place).

    Every time step the policy answers all n_e observations in one forward pass; every T steps one batch of n_e * T
    is learned from, by the parameters that acted it: exactly on policy, so any on-policy algorithm fits."""
    p = Program("paac")
    with p.host("machine", cpus=max(1, env_workers), gpus=gpus):
        p.worker(act_and_learn)(task, Alone(), num_envs=num_envs, env_workers=env_workers)
    return p
