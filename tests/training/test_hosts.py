"""Workers report the `HostInfo` of their host. It is stored once for each host, and changes are logged."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from gossamer.config.build import program
from gossamer.config.resolve import configure
from gossamer.program import Program
from gossamer.system.errors import UserError
from gossamer.system.machine import host_info
from gossamer.training.hosts import Hosts


def hosts_of(wired: Program, file: Path, log: list[str]) -> Hosts:
    return Hosts({copy.name: copy.node.host for copy in wired.crew}, wired.saved_workers, file=file, log=log.append)


def test_each_host_is_listed_and_its_changes_are_logged(tmp_path: Path) -> None:
    wired = program(configure("pala", env="catch", hosts=2, learners=2))
    here, file, log = host_info(device="cpu", dtype=torch.float32, threads=2), tmp_path / "hosts.json", list[str]()
    kept = hosts_of(wired, file, log)
    for rank in range(4):
        kept.computes_with(f"act_and_learn[{rank}]", replace(here, node="a" if rank < 2 else "b"))
    assert {host: what["node"] for host, what in kept.info.items()} == {"host0": "a", "host1": "b"}
    assert json.loads(file.read_text()) == kept.info
    assert len(log) == 2  # one line for each host

    again = hosts_of(wired, file, log)
    again.computes_with("act_and_learn[3]", replace(here, node="b", torch="9.9"))
    assert log[-1] == f"host1 differs from the run before: torch {here.torch}, now 9.9"
    stored = json.loads(file.read_text())
    assert (stored["host0"]["node"], stored["host1"]["torch"]) == ("a", "9.9")
    assert again.info == {"host1": {**asdict(here), "node": "b", "torch": "9.9"}}


@pytest.mark.parametrize("content", ['{"machine": ', "[]", '{"machine": 3}'])
def test_a_damaged_file_is_named(content: str, tmp_path: Path) -> None:
    wired, file = program(configure("paac", env="catch")), tmp_path / "hosts.json"
    file.write_text(content)
    with pytest.raises(UserError, match=r"hosts.json: truncated or altered .*restore or remove it"):
        hosts_of(wired, file, [])
