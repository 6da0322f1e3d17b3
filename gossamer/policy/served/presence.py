"""What another host knows of its actors that predictors serve."""

from __future__ import annotations

from gossamer.data import Stamp


class Presence:
    """Service: how many actors of a host have not ended. It stands where a host with replicas has its copy of the
    parameters."""

    def __init__(self, actors: int) -> None:
        self._actors = self._all = actors
        self._ended = 0  # actors whose queue says that they have ended

    def at_least(self, stamp: Stamp) -> bool:
        """Whether newer parameters may follow. Does not wait for these: the queue leases a slot after its parameters
        have been published, and predictors take the newest ones after each request."""
        return True

    def followed(self) -> bool:
        """Whether actors of this host have not ended."""
        return self._actors > 0

    def ask_again(self) -> None:
        """The learner's host answers again: there is no copy here to offer."""

    def leave(self) -> None:
        """An actor of this host ends."""
        self._actors -= 1

    def abandon(self, actors: int) -> None:
        """All actors that one queue has on this host have ended: so many. Some ended before the host was restarted."""
        self._ended += actors
        if self._ended >= self._all:
            self._actors = 0
