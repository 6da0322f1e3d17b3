"""Short descriptions of Ray's errors. Ray's own messages have many lines and contain gRPC details."""

from __future__ import annotations

from ray import exceptions

MEANINGS: tuple[tuple[type[BaseException], str], ...] = (  # subclasses before their bases
    (exceptions.GetTimeoutError, "timed out"),
    (exceptions.ActorUnavailableError, "not reachable"),
    (exceptions.RayActorError, "host process died"),
    (exceptions.WorkerCrashedError, "host process died"),
    (exceptions.NodeDiedError, "node died"),
    (exceptions.LocalRayletDiedError, "Ray on this machine died"),
    (exceptions.ObjectLostError, "data lost: a node or process that held it died"),
    (exceptions.TaskCancelledError, "request cancelled"),
    (exceptions.RpcError, "not reachable"),
)


def describe(error: BaseException) -> str:
    """One short line for an error of Ray or of a connection; for any other error, the first line of its message."""
    if isinstance(error, exceptions.RayActorError) and "node has died" in str(error):
        return "node died"
    for kind, meaning in MEANINGS:
        if isinstance(error, kind):
            return meaning
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return (str(error).strip() or type(error).__name__).split("\n")[0]
