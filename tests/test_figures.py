"""The wiring of every architecture is its paper's figure."""

from __future__ import annotations

from some_parts import a_task

from gossamer.architectures import paac
from gossamer.loops import act_and_learn


def test_paac_is_one_worker_and_nothing_between() -> None:
    # Clemente et al. 2017, fig. 1: the environments of n_w workers around one master with one set of parameters. The
    # workers of the figure step environments; what acts and learns is the master alone, so nothing is handed on.
    program = paac(a_task(), envs=32, workers=8)
    assert program.edges() == []
    assert program.services == ()
    (member,) = program.crew
    assert (member.name, member.node.make) == ("act_and_learn", act_and_learn)
    assert member.node.kwargs == {"envs": 32, "workers": 8}


def test_paac_is_one_process_with_a_core_for_each_that_steps() -> None:
    hosts = paac(a_task(), envs=32, workers=8, gpus=1).hosts
    assert [(host.name, host.cpus, host.gpus) for host in hosts.values()] == [("machine", 8, 1)]
    assert paac(a_task(), workers=0).hosts["machine"].cpus == 1  # whatever the machine has, but one at least


def test_paac_as_mermaid() -> None:
    assert paac(a_task(), envs=32, workers=8).mermaid().splitlines() == [
        "flowchart LR",
        '  subgraph h0["machine"]',
        '    w0(["act_and_learn x1<br/>Task<br/>Alone<br/>envs=32<br/>workers=8"])',
        "  end",
    ]
