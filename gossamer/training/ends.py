"""How a run ends that was not to end yet: what is kept, and what the user is told."""

from __future__ import annotations

from pathlib import Path

from gossamer.errors import EnvironmentFailed
from gossamer.storage.directory import LOG
from gossamer.training.observer import RunObserver


def ended_early(error: BaseException, observer: RunObserver, directory: Path) -> None:
    """Save what the members handed over, where it was an environment or the user that ended the run, and say so."""
    if isinstance(error, EnvironmentFailed):
        observer.keep_last()
        told = getattr(error, "__notes__", [])[:1] if len(observer.members) > 1 else []  # in worker act_and_learn[1]
        told += [error.advice] if error.advice else []
        if error.trace:
            observer.log(error.trace)
            told.append(f"traceback in {directory / LOG}")
        error.advice = "; ".join([*told, _kept(observer)])
    elif isinstance(error, KeyboardInterrupt):
        observer.keep_last()
        raise KeyboardInterrupt("; ".join([*map(str, error.args), _kept(observer)])) from None


def _kept(observer: RunObserver) -> str:
    """Which checkpoint there is."""
    found = observer.store.all()
    if not found:
        return "no checkpoint was written"
    return f"last checkpoint: step {found[-1].steps:,}; go on with gossamer resume {observer.store.directory.parent}"
