"""Errors of a cluster. This module does not import Ray."""

from __future__ import annotations


class ClusterUnreachable(ConnectionError):
    """There is no cluster at the address, or it rejects this process."""


class LackOfResources(RuntimeError):
    """The cluster does not have the resources that a program's hosts need."""


class HostFailed(RuntimeError):
    """A host failed too often, could not be started, or did not come back within the timeout."""
