"""The C allocator's settings, in a process of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource
import torch
from gossamer.machine import keep_freed_memory

torch.set_num_threads(1)
print(keep_freed_memory())
faults = []
for _ in range(8):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)  # 64 MiB
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(*faults)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the allocator is glibc's")
def test_freed_blocks_stay_in_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    agreed, faults = done.stdout.splitlines()
    if agreed == "False":
        pytest.skip("the C library has no mallopt")
    first, *_, last = map(int, faults.split())
    assert first > 100 > last  # glibc before 2.38 finds room for aligned blocks after a few of them
