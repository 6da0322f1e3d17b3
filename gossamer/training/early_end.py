"""The end of a run by an error: a last checkpoint is saved and the error message is completed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from gossamer.storage.contents import LOG
from gossamer.system.errors import EnvironmentFailed
from gossamer.system.paths import shown
from gossamer.training.observer import RunObserver


def ended_early(error: BaseException, observer: RunObserver, directory: Path) -> None:
    """Save what the members handed over, and complete the message of an environment's error."""
    if isinstance(error, OSError):
        return  # a full disk, or a directory that is gone: nothing can be written
    try:
        observer.keep_last()
    except Exception as second:
        error.add_note(f"no checkpoint could be written afterwards: {second}")
    if isinstance(error, EnvironmentFailed):
        told = getattr(error, "__notes__", [])[:1] if len(observer.members) > 1 else []  # in worker act_and_learn[1]
        told += [error.advice] if error.advice else []
        if error.trace:
            with suppress(OSError):
                observer.log(error.trace)
            told.append(f"traceback in {shown(directory / LOG)}")
        error.advice = "; ".join([*told, observer.checkpoints.store.last()])
