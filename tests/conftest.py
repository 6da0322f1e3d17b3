"""What all tests share."""

from __future__ import annotations

import pytest
import torch

torch.set_num_threads(1)  # everything here is small: a second thread would only be waited for


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
