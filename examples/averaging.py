"""Train with your own architecture: two members average their parameters every hundred steps.

    cd examples
    gossamer train averaging:averaging --env catch --every 100 --steps 160000
    gossamer train averaging:averaging --env catch --help    # its keywords are options with defaults

or from Python, as at the end of this file: python examples/averaging.py
"""

from __future__ import annotations

import sys

from gossamer.exchange import Gossip, Mailboxes
from gossamer.exchange.gossip.graphs import Complete
from gossamer.experience import Direct
from gossamer.loops import Envs, act_and_learn
from gossamer.policy import Replica
from gossamer.program import Program
from gossamer.task import Task


def averaging(task: Task, *, num_envs: int = 16, every: int = 100) -> Program:
    """Two members on one machine, each with `num_envs` environments. After every `every` optimizer steps each member
    waits for the other's parameters and continues from the average (local SGD)."""
    p = Program("averaging")
    with p.host("machine", cpus=2, gpus=task.gpus):
        post = p.service(Mailboxes, saved=True)(2, newest=False)
        exchange = Gossip(post, Complete(), lock_step=True, interval=every)
        p.worker(act_and_learn, copies=2, saved=True)(task, Replica(), Direct(), exchange, envs=Envs(num_envs))
    return p


if __name__ == "__main__":
    import gossamer

    directory = sys.argv[1] if len(sys.argv) > 1 else "runs/averaging"
    run = gossamer.train("averaging:averaging", env="catch", learning_rate=0.002, steps=160_000, run_dir=directory)
    print(f"mean return {gossamer.evaluate(run.directory, episodes=100).mean_return:.2f}, 1 is the best")
