"""PAAC: parallel advantage actor-critic (Clemente, Castejon and Chandra 2017, fig. 1)."""

from __future__ import annotations

from gossamer.architectures.options import ENV_WORKERS, NUM_ENVS
from gossamer.exchange import Alone
from gossamer.experience import own_experience
from gossamer.loops import Envs, act_and_learn
from gossamer.options import options
from gossamer.policy import Replica
from gossamer.program import Program
from gossamer.task import Task


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
