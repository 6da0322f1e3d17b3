"""What all tests share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from gossamer.training import session

os.fsync = lambda handle: None  # no test survives a power failure: nothing need reach the disk
session.commit = cache(session.commit)  # git takes as long as a short run
torch.set_num_threads(1)  # everything here is small: a second thread would only be waited for
settings.register_profile("untimed", deadline=None, max_examples=50)  # a busy machine is no failure
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of several members end without their picture, which takes longer than a short run. Runs that fixtures of a
    module make have one."""
    monkeypatch.setattr("gossamer.diagnostics.plots.draw", lambda gossip, path: None)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    torch.set_flush_denormal(False)  # a worker without a thread of its own set it


@contextmanager
def _ray_cluster() -> Iterator[None]:
    """One Ray instance of this machine, with 6 cpus and a GPU, which need not be there. A launcher uses it as it is."""
    ray = pytest.importorskip("ray", reason="Ray is not installed (the extra `ray`)")
    from gossamer.launch.ray.launcher import PRIORITY

    before = signal.getsignal(signal.SIGTERM)
    ray.init(
        address="local",
        num_cpus=6,
        num_gpus=1,
        object_store_memory=200_000_000,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _system_config=PRIORITY,
    )
    yield
    ray.shutdown()
    signal.signal(signal.SIGTERM, before)


class RayCluster:
    """All tests marked `ray` share one cluster. It ends before a test that is not: that must not find one."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._up = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if needs_ray(item) and not self._up:
            self._running.enter_context(_ray_cluster())
            self._up = True

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> None:
        if self._up and not (nextitem and needs_ray(nextitem)):
            self._running.close()
            self._up = False


def needs_ray(item: pytest.Item) -> bool:
    return item.get_closest_marker("ray") is not None


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(RayCluster())
    config.pluginmanager.register(OneCore())


class OneCore:
    """Where tests run in several processes, each keeps to a core of its own, but for tests that start hosts: the thread
    teams of workers in one process would wait for those of the other."""

    def __init__(self) -> None:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
        self._all = os.sched_getaffinity(0) if worker and sys.platform == "linux" else set[int]()
        count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        self._own = {sorted(self._all)[int(worker)]} if len(self._all) >= count > 1 else self._all

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if self._all:
            hosts = needs_ray(item) or item.get_closest_marker("hosts") is not None
            os.sched_setaffinity(0, self._all if hosts else self._own)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `hosts` or `ray` run first."""
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ORDER])


ORDER = ["hosts", "ray"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where tests run in several processes, those of a file run in one, so that its fixtures are made once. So do all
    files with tests marked `hosts` or `ray`: two clusters at once would be slow, and their tests have time limits."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return place(config.rootpath / nodeid.partition("::")[0])

    return ByFile(config, log)


@cache
def place(file: Path) -> str:
    """The group of a file's tests. The process that distributes tests knows their names, not their marks."""
    text = file.read_text()
    return "clusters" if any(f"mark.{name}" in text for name in ORDER) else str(file)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("needs the right to mount a file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)  # a traceback may still hold a file
