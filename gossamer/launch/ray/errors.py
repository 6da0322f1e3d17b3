"""What can go wrong with a cluster. Importing this needs no Ray."""

from __future__ import annotations


class ClusterUnreachable(ConnectionError):
    """There is no cluster at the address, or it does not let this process in."""


class LackOfResources(RuntimeError):
    """The cluster does not have what a program's hosts need."""


class HostFailed(RuntimeError):
    """A host fails again and again, or is gone and does not come back."""
