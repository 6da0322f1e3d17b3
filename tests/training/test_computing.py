"""What each host computes with: said by its workers, kept once for each host, changes logged."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import torch

from gossamer.config.build import program
from gossamer.config.resolve import configure
from gossamer.machine import ran
from gossamer.training.computing import Computing


def test_each_host_is_listed_and_its_changes_are_logged(tmp_path: Path) -> None:
    wired = program(configure("pala", env="catch", hosts=2, learners=2))
    here, file, log = ran(device="cpu", dtype=torch.float32, threads=2), tmp_path / "hosts.json", list[str]()
    computing = Computing(file, wired, log.append)
    for rank in range(4):
        computing.take(f"act_and_learn[{rank}]", replace(here, node="a" if rank < 2 else "b"))
    assert {host: what["node"] for host, what in computing.hosts.items()} == {"host0": "a", "host1": "b"}
    assert json.loads(file.read_text()) == computing.hosts
    assert len(log) == 2  # one line for each host

    again = Computing(file, wired, log.append)
    again.take("act_and_learn[3]", replace(here, node="b", torch="9.9"))
    assert log[-1] == f"host1 differs from the run before: torch {here.torch}, now 9.9"
    kept = json.loads(file.read_text())
    assert (kept["host0"]["node"], kept["host1"]["torch"]) == ("a", "9.9")
    assert again.hosts == {"host1": {**asdict(here), "node": "b", "torch": "9.9"}}
