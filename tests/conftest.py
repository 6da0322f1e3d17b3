"""What all tests share."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # everything here is small: a second thread would only be waited for


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One Ray instance of this machine, with 6 cpus, for all tests marked `ray`. A launcher uses it as it is."""
    ray = pytest.importorskip("ray", reason="Ray is not installed (the extra `ray`)")
    before = signal.getsignal(signal.SIGTERM)
    ray.init(
        address="local",
        num_cpus=6,
        num_gpus=0,
        object_store_memory=200_000_000,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield
    ray.shutdown()
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(autouse=True)
def _on_ray(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("ray"):
        request.getfixturevalue("ray_cluster")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `ray` come last: others must not find a Ray instance in their process."""
    items.sort(key=lambda item: item.get_closest_marker("ray") is not None)


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
