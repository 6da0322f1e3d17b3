"""PAAC: parallel advantage actor-critic (Clemente, Castejon and Chandra 2017, fig. 1)."""

from __future__ import annotations

from gossamer.exchange import Alone
from gossamer.experience import own_experience
from gossamer.loops import ENV_WORKERS, NUM_ENVS, Envs, act_and_learn
from gossamer.options import option, options
from gossamer.policy import Replica
from gossamer.program import Program
from gossamer.task import Task


def paac(task: Task, *, num_envs: int = 32, env_workers: int = 8, gpus: float = 0) -> Program:
    """One learner with `num_envs` (n_e) environments in lock-step, stepped by `env_workers` (n_w) workers: threads for
    Atari (0: one per core), processes for Gymnasium (0 or 1: stepped by the learner's thread).

    At every time step the policy evaluates all n_e observations in one forward pass. Every T steps, the learner trains
    on a batch of n_e * T steps. Behaviour and target policy are identical, so any on-policy algorithm can be used."""
    p = Program("paac")
    with p.host("machine", cpus=max(1, env_workers), gpus=gpus):
        p.worker(act_and_learn, saved=True)(
            task, Replica(), own_experience(task.algorithm), Alone(), envs=Envs(num_envs, env_workers)
        )
    return p


@options
class PAAC:
    """Options of PAAC."""

    num_envs: int = option(NUM_ENVS, 32, least=1, most=16_384)
    env_workers: int = option(ENV_WORKERS, 0, least=0, most=1024)

    def program(self, task: Task) -> Program:
        return paac(task, num_envs=self.num_envs, env_workers=self.env_workers, gpus=task.gpus)
