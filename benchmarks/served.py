"""Served policies against replicas: actions per second and latency on this machine.

    .venv/bin/python -m benchmarks.served                  # 8 to 256 environments, in threads
    .venv/bin/python -m benchmarks.served --launcher ray   # the actors on a host of their own, a process

Actors ask for actions on pictures of 4 x 84 x 84 bytes as fast as they get them; no environment is stepped and nothing
is learned. The network is the Nature network. Each case is measured for `--seconds` after a warm-up: so many
environments of all actors together, in actors with `--each` environments (0: all in one actor), with replicas and with
one and two predictors. Writes `served-LAUNCHER.json` after each case:

* `actions`: per second: environments that got one.
* `requests`: per second: calls of the policy, each for all environments of an actor.
* `median_ms`, `p99_ms`: of such a call, of all actors.
* `bytes`: of a request and of its answer on Ray for each environment, without the headers of TCP.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.provenance import Results, add_out
from benchmarks.server import packed
from gossamer.algorithms import A2C, Network
from gossamer.data import Stamp, Trajectory, numpy_dtype
from gossamer.exchange import Parameters, fetch
from gossamer.exchange.broadcast import Published
from gossamer.exchange.flat import Flat, buffers
from gossamer.launch.ray.calls import RemoteCall
from gossamer.launch.ray.launcher import Ray
from gossamer.launch.ray.messages import CallOutcome
from gossamer.launch.threads import threads
from gossamer.loops import predict
from gossamer.nn.optim import Adam
from gossamer.nn.torsos import nature
from gossamer.policy import ActorPolicy, Policy, Replica, build
from gossamer.policy.served import BatchRule, Key, PolicyAnswer, Presence, Request, Requests, Served, Who
from gossamer.program import Program, copy_name
from gossamer.runtime import Context, Observer, Silent
from gossamer.spaces import Discrete, Spec
from gossamer.system.machine import KEEP_FREED_MEMORY, keep_freed_memory
from gossamer.task import Optimization, Task
from gossamer.workers.member import prepared

ENVS = (8, 16, 32, 64, 128, 256)
WARM_UP = 0.3  # of the measured time
SPEC = Spec((4, 84, 84), np.dtype(np.uint8), Discrete(6))
LAUNCHERS: dict[str, Callable[[Program, Observer], None]] = {"threads": threads, "ray": Ray(env=KEEP_FREED_MEMORY)}


@dataclass(frozen=True)
class Still:
    """Environments of which only the spec is asked for."""

    name = "still"
    spec = SPEC

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> Any:
        return self

    def close(self) -> None: ...


@dataclass(frozen=True)
class Measured:
    """What an actor has measured."""

    latencies: list[float]  # seconds of each call
    envs: int  # of each call
    seconds: float


class Kept(Silent):
    """Observer: keeps what actors have measured."""

    def __init__(self) -> None:
        self.measured: list[Measured] = []

    def report(self, worker: str, record: Any) -> None:
        if isinstance(record, Measured):
            self.measured.append(record)

    def figures(self) -> dict[str, float]:
        """Of all actors."""
        times = np.concatenate([each.latencies for each in self.measured])
        rates = [len(each.latencies) / each.seconds for each in self.measured]
        return {
            "actions": round(sum(rate * each.envs for rate, each in zip(rates, self.measured, strict=True))),
            "requests": round(sum(rates)),
            "median_ms": round(1e3 * float(np.median(times)), 2),
            "p99_ms": round(1e3 * float(np.percentile(times, 99)), 2),
        }


def publish(ctx: Context, task: Task, parameters: Parameters, actors: Presence) -> None:
    """Worker: stands in for a learner, whose parameters stay as they are until all actors have ended."""
    model = build(prepared(ctx, task), SPEC)
    parameters.publish(Published(Stamp(0, 1), Flat(model).vector.cpu(), buffers(model)))
    while actors.followed() and not ctx.stopped:
        ctx.sleep(0.1)
    parameters.close()


def ask(ctx: Context, task: Task, policy: Policy, actors: Presence, envs: int, seconds: float) -> None:
    """Worker: an actor that steps no environments."""
    task = prepared(ctx, task)
    with closing(policy.join(ctx, task, SPEC, envs)) as end:
        slot = Trajectory.empty(1, envs, SPEC.obs_shape, numpy_dtype(SPEC.obs_dtype), device=task.device)
        calls(end, slot.obs[0], WARM_UP * seconds)
        start = time.perf_counter()
        latencies = calls(end, slot.obs[0], seconds)
        ctx.report(Measured(latencies, envs, time.perf_counter() - start))
        calls(end, slot.obs[0], WARM_UP * seconds)  # others have not measured to the end yet
    actors.leave()


def calls(policy: ActorPolicy, obs: Tensor, seconds: float) -> list[float]:
    """Call the policy for so many seconds. Returns the seconds of each call, with the copy of its actions."""
    found, end = list[float](), time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        policy(obs, {})[0].action.cpu().numpy()
        found.append(time.perf_counter() - start)
    return found


def program(task: Task, seconds: float, *, envs: int, each: int, predictors: int, elsewhere: bool) -> Program:
    """Actors of `each` environments, on the host of the `predictors` (0: replicas) or on another one, that measure for
    so many seconds."""
    p, actors = Program("served"), envs // each
    with p.host("learner", cpus=0):
        parameters = p.service(Parameters)()
        requests = p.service(Requests)({copy_name(ask, rank, actors): rank for rank in range(actors)})
        measuring = p.service(Presence)(actors)
        p.worker(publish)(task, parameters, measuring)
        if predictors:
            p.worker(predict, copies=predictors)(task, requests, parameters, rule=BatchRule())
    with p.host("actors" if elsewhere else "learner", cpus=0):
        policy: Policy
        if predictors:
            policy = Served(requests, p.service(Presence)(actors) if elsewhere else None)
        elif elsewhere:
            copy = p.service(Parameters)([copy_name(ask, rank, actors) for rank in range(actors)])
            p.worker(fetch)(parameters, copy)
            policy = Replica(copy)
        else:
            policy = Replica(parameters)
        p.worker(ask, copies=actors)(task, policy, measuring, each, seconds)
    return p


def sizes(envs: int = 8) -> dict[str, int]:
    """Bytes of a request and of its answer for each environment."""
    obs = torch.zeros(envs, 84, 84, 4, dtype=torch.uint8).movedim(-1, 1)
    request = Request(obs, None).packed()
    answer = PolicyAnswer((torch.zeros(envs, 6), torch.zeros(envs)), True, 1, {}).packed()
    call = RemoteCall(0, "ask", (Key(Who(0, 0), 1), request), {}, True)
    return {"request": packed(call) // envs, "answer": packed(CallOutcome(answer)) // envs}


def a_task(precision: str, device: str) -> Task:
    """Pictures through the Nature network."""
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "auto": None}[precision]
    network = Network(nature, 1 / 255, dtype=dtype)
    return Task(Still(), A2C(), network, Optimization(Adam().make, 1e-4, 0), 1, device=device, threads=1)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launcher", choices=LAUNCHERS, default="threads")
    parser.add_argument("--envs", type=int, nargs="+", default=ENVS)
    parser.add_argument("--each", type=int, nargs="+", default=(0, 8, 1), help="environments of an actor; 0: all")
    parser.add_argument("--most-actors", type=int, default=64, help="leave out cases with more")
    parser.add_argument("--predictors", type=int, nargs="+", default=(0, 1, 2), help="0: replicas")
    parser.add_argument("--precision", choices=("auto", "fp32", "bf16"), default="auto")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each case")
    add_out(parser)
    given = parser.parse_args()
    keep_freed_memory()
    task, results = a_task(given.precision, given.device), Results(f"served-{given.launcher}", given.out)
    found: dict[str, Any] = {"network": "nature", "bytes": sizes(), "rows": []}
    for envs, each, predictors in itertools.product(given.envs, given.each, given.predictors):
        each = each or envs
        if envs % each or envs // each > given.most_actors:
            continue
        case = {"envs": envs, "each": each, "predictors": predictors}
        wired = program(task, given.seconds, **case, elsewhere=given.launcher == "ray")
        LAUNCHERS[given.launcher](wired, kept := Kept())
        found["rows"].append({**case, **kept.figures()})
        print(found["rows"][-1], flush=True)
        results.write(found)


if __name__ == "__main__":
    main()
