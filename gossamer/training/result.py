"""The result of a run that has ended: why it ended, and its counters (`result.json`)."""

from __future__ import annotations

from typing import Any

from gossamer.config.config import Config
from gossamer.config.file import to_dict
from gossamer.diagnostics.consensus import ConsensusMonitor
from gossamer.system.machine import machine
from gossamer.system.usage import Usage
from gossamer.system.version import __version__
from gossamer.training.observer import RunObserver
from gossamer.training.policy_lag import by_value, summary
from gossamer.training.progress import Progress

PROTOCOL = "training: mean of the last 100 training episodes, exploring actions, whole games, unclipped scores"


def result(
    config: Config, progress: Progress, observer: RunObserver, consensus: ConsensusMonitor | None, *, done: int
) -> dict[str, Any]:
    """The content of `result.json`, but for events, evaluations and the hosts' information. `done`: steps before this
    session."""
    ended, short = why_ended(observer)
    dropped = progress.outcomes.dropped()
    return {
        "ended": ended,
        "steps": progress.steps,
        "short": short,
        "learned": progress.learned,
        "reused": progress.reused,
        "dropped": sum(dropped.values()),
        "dropped_because": dropped,
        "unreported": progress.outcomes.unreported,
        "policy_lag": {**summary(progress.staleness.lag), "trajectories": by_value(progress.staleness.lag)},
        "queue": {**summary(progress.staleness.waiting), "updates": by_value(progress.staleness.waiting)},
        "gradients": progress.gradients.result(),
        "replay": progress.replayed.result(progress.steps),
        "gossip": consensus.overall() if consensus else None,
        "time": {part: round(share, 4) for part, share in progress.shares().items()},
        "seconds_in": {part: round(seconds, 1) for part, seconds in sorted(progress.spent.items())},
        "usage": _usage(observer.usage, (progress.steps - done) * progress.frames_per_step),
        "uncounted": progress.uncounted,
        "frames": progress.steps * progress.frames_per_step,
        "episodes": progress.episodes,
        "seconds": round(progress.elapsed, 1),
        "steps_per_second": round(progress.speed, 1),
        "mean_return": progress.mean_return,
        **progress.of_games(),
        "protocol": PROTOCOL,
        "stop_at_return": observer.stop_at_return,
        "stop_at_eval": observer.stop_at_eval,
        "solved_steps": observer.solved_steps,
        "eval_solved_steps": observer.eval_solved_steps,
        "environment_restarts": progress.restarts,
        "checkpoint": observer.checkpoints.store.get("last").path.name,
        "failures": progress.hosts.to_list(),
        "machine": machine(config.run.device),
        "version": __version__,
        "config": to_dict(config),
    }


def _usage(usage: Usage | None, frames: int) -> dict[str, float] | None:
    """Of this machine in the session that acted these frames; None where workers were elsewhere."""
    if usage is None:
        return None
    found = usage.overall()
    return found | ({"frames_per_joule": round(frames / found["gpu_joules"], 3)} if found.get("gpu_joules") else {})


def judged(observer: RunObserver) -> dict[str, Any]:
    """Entries of `result.json` that evaluations after training may change."""
    observer.look_for_success()
    ended, short = why_ended(observer)
    solved = {"solved_steps": observer.solved_steps, "eval_solved_steps": observer.eval_solved_steps}
    return {"ended": ended, "short": short, **solved}


def why_ended(observer: RunObserver) -> tuple[str, int]:
    """Why the run ended, for people; and the steps that it did not act although nothing asked it to end."""
    if observer.interrupted:
        return observer.interrupted, 0
    if observer.solved:
        return "reached the return asked for", 0
    if observer.callbacks.stopped and observer.budget.missing:
        return observer.callbacks.stopped, 0
    goals = [goal for goal in (observer.stop_at_return, observer.stop_at_eval) if goal is not None]
    missed = "".join(f", the return asked for ({goal:g}) was not reached" for goal in goals)
    missing = observer.budget.missing
    if missing and observer.out_of_time:
        return f"reached the time asked for{missed}", 0
    if missing:
        reasons = ", ".join(map(str, observer.progress.hosts.absences)) or "all members ended before"
        return f"{missing:,} steps short: {reasons}", missing
    return f"all steps done{missed}", 0
