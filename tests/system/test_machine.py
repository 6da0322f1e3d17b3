"""The C allocator's settings, in a process of their own."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

PAGES = 2**26 // 4096
SCRIPT = """
import ctypes, resource, threading
import numpy as np
from gossamer.system.machine import keep_freed_memory

PR_SET_THP_DISABLE = 41  # a huge page would be one fault
ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
print(keep_freed_memory())


def work():
    faults = []
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        np.ones(2**26, np.uint8)  # as malloc gives it; glibc before 2.38 does not reuse each aligned block
        faults.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)
    print(*faults)


for _ in range(2):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library has no mallopt")
def test_freed_blocks_stay_in_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    agreed, *threads = done.stdout.splitlines()
    assert agreed == "True"
    first, second = ([int(faults) for faults in thread.split()] for thread in threads)
    assert first[0] > 0.9 * PAGES
    assert max(*first[1:], *second) < 0.1 * PAGES
