"""The wiring of every architecture is its paper's figure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from some_parts import a_task

from gossamer.algorithms import DQN, R2D2, SarsaLambda, VTrace
from gossamer.architectures import (
    A3C,
    GA3C,
    GALA,
    IMPALA,
    PAAC,
    PALA,
    ApeX,
    DeepQNetwork,
    Gorila,
    ParallelSarsa,
    RecurrentReplay,
    SynchronousA2C,
)
from gossamer.exchange import Alone, Gossip
from gossamer.exchange.gossip.graphs import RING
from gossamer.exchange.proxy.workers import carry, watch
from gossamer.experience import Direct
from gossamer.loops import Envs, act_and_learn
from gossamer.policy import Replica
from gossamer.program import Program

OFF_POLICY = a_task(algorithm=VTrace())
PAGES = Path(__file__).parents[1] / "docs" / "architectures"
DRAWN: dict[str, Callable[[], Program]] = {  # as their pages draw them
    "paac": lambda: PAAC(num_envs=32, env_workers=0).program(a_task()),
    "gala": lambda: GALA(learners=4, num_envs=16, env_workers=0).program(a_task()),
    "pala": lambda: PALA(hosts=2, learners=2, num_envs=16, env_workers=0).program(a_task()),
    "ga3c": lambda: GA3C(predictors=2, trainers=2, env_workers=0).program(a_task()),
    "impala": lambda: IMPALA(actors=2, num_envs=32, env_workers=0).program(OFF_POLICY),
    "dqn": lambda: DeepQNetwork(env_workers=0).program(a_task(algorithm=DQN())),
    "gorila": lambda: Gorila(bundles=2, shards=2, num_envs=4, env_workers=0).program(a_task(algorithm=DQN())),
    "a3c": lambda: A3C(learners=4, num_envs=4, env_workers=0).program(a_task()),
    "apex": lambda: ApeX(actors=1, num_envs=32, env_workers=0).program(a_task(algorithm=DQN())),
    "a2c": lambda: SynchronousA2C(hosts=2, num_envs=4, env_workers=0).program(a_task()),
    "r2d2": lambda: RecurrentReplay(actors=1, num_envs=32, env_workers=0).program(a_task(algorithm=R2D2())),
    "sarsa": lambda: ParallelSarsa().program(a_task(algorithm=SarsaLambda())),
}


@pytest.mark.parametrize("name", DRAWN)
def test_the_page_of_an_architecture_has_the_figure_of_its_wiring(name: str) -> None:
    assert f"```mermaid\n{DRAWN[name]().mermaid()}\n```" in (PAGES / f"{name}.md").read_text()


def test_the_page_of_impala_has_the_figure_with_a_loader_too() -> None:
    mixed = IMPALA(actors=2, num_envs=32, env_workers=0, replay_share=0.5, parallel_loading=True)
    program = mixed.program(OFF_POLICY)
    assert f"```mermaid\n{program.mermaid()}\n```" in (PAGES / "impala.md").read_text()


def test_the_page_of_accelerated_methods_has_their_figure() -> None:
    program = SynchronousA2C(num_envs=16, env_workers=0).program(a_task())
    assert f"```mermaid\n{program.mermaid()}\n```" in (PAGES.parent / "accelerated.md").read_text()


def test_the_page_of_served_policies_has_their_figure() -> None:
    program = IMPALA(actors=2, num_envs=32, env_workers=0, policy="served").program(OFF_POLICY)
    assert f"```mermaid\n{program.mermaid()}\n```" in (PAGES.parent / "served-policies.md").read_text()


def test_the_page_of_gorila_has_the_figure_with_actors_apart_too() -> None:
    program = Gorila(actors=2, num_envs=4, env_workers=0).program(a_task(algorithm=DQN()))
    assert f"```mermaid\n{program.mermaid()}\n```" in (PAGES / "gorila.md").read_text()


def test_the_page_of_a3c_has_the_figure_with_a_server_too() -> None:
    program = A3C(hosts=2, learners=2, num_envs=4, env_workers=0, shards=1).program(a_task())
    assert f"```mermaid\n{program.mermaid()}\n```" in (PAGES / "a3c.md").read_text()


def test_the_page_of_apex_has_the_figure_with_hosts_of_actors_too() -> None:
    program = ApeX(hosts=2, actors=1, num_envs=32, env_workers=0, replay_shards=2).program(a_task(algorithm=DQN()))
    assert f"```mermaid\n{program.mermaid()}\n```" in (PAGES / "apex.md").read_text()


def test_paac_is_one_worker_and_nothing_between() -> None:
    # Clemente et al. 2017, fig. 1: the environments of n_w workers around one master with one set of parameters. The
    # workers of the figure step environments; what acts and learns is the master alone, so nothing is handed on.
    program = PAAC(num_envs=32, env_workers=8).program(a_task())
    assert program.edges() == []
    assert program.services == ()
    (member,) = program.crew
    assert (member.name, member.node.make) == ("act_and_learn", act_and_learn)
    assert member.node.args[1:] == (Replica(), Direct(), Alone())
    assert member.node.kwargs == {"envs": Envs(32, 8)}


def test_paac_is_one_process_with_a_core_for_each_that_steps() -> None:
    hosts = PAAC(num_envs=32, env_workers=8).program(replace(a_task(), device="cuda")).hosts
    assert [(host.name, host.cpus, host.gpus) for host in hosts.values()] == [("machine", 8, 1)]
    assert PAAC(env_workers=0).program(a_task()).hosts["machine"].cpus == 1  # one at least


def test_paac_as_mermaid() -> None:
    assert PAAC(num_envs=32, env_workers=8).program(a_task()).mermaid().splitlines() == [
        "flowchart LR",
        '  subgraph h0["machine"]',
        '    w0(["act_and_learn x1<br/>Task<br/>Replica<br/>Direct<br/>Alone<br/>envs=32 / 8 workers"])',
        "  end",
    ]


def test_gala_is_a_mailbox_between_learners_on_one_machine() -> None:
    # Assran et al. 2019, fig. 1: agents on a ring, each with simulators of its own. They share memory, so the edges of
    # the ring are the `graph` of the exchange, and what learners hold a handle to is where the messages lie.
    program = GALA(learners=4, num_envs=16, env_workers=2).program(a_task())
    assert program.edges() == [("act_and_learn", "Mailboxes")]
    assert [(s.name, s.args, s.host) for s in program.services] == [("Mailboxes", (4,), "machine")]
    assert [copy.name for copy in program.crew] == [f"act_and_learn[{rank}]" for rank in range(4)]
    assert {copy.node.make for copy in program.crew} == {act_and_learn}
    assert [(host.name, host.cpus) for host in program.hosts.values()] == [("machine", 8)]
    assert [RING.out(rank, (0, 1, 2, 3), 1) for rank in range(4)] == [(1,), (2,), (3,), (0,)]
    (worker,) = program.workers
    assert [part.graph for part in worker.args if isinstance(part, Gossip)] == [RING]


def test_gala_as_mermaid() -> None:
    lines = GALA(learners=4, num_envs=16).program(a_task()).mermaid().splitlines()
    assert lines[0] == "flowchart LR"
    assert lines[1] == '  subgraph h0["machine"]'
    assert lines[2].startswith('    w0(["act_and_learn x4<br/>Task<br/>')
    assert lines[2].endswith('<br/>envs=16 / 1 workers"])')
    assert lines[3:] == ['    s0[("Mailboxes")]', "  end", "  w0 --- s0"]


def test_pala_is_a_data_proxy_on_every_host_and_couriers_between_them() -> None:
    # PALA's figure: learners know their own host's data proxy alone; proxies move what is between hosts.
    program = PALA(hosts=3, learners=2, num_envs=16).program(a_task())
    assert [(s.name, s.host) for s in program.services] == [(f"Proxy[{h}]", f"host{h}") for h in range(3)]
    edges = program.edges()
    for h, first in enumerate(("[0:2]", "[2:4]", "[4:6]")):
        assert [to for who, to in edges if who == f"act_and_learn{first}"] == [f"Proxy[{h}]"]
        assert [to for who, to in edges if who == f"watch[{h}]"] == [f"Proxy[{h}]"]
        reached = [to for who, to in edges if who == f"carry{first}"]
        assert (reached[0], sorted(reached)) == (f"Proxy[{h}]", [f"Proxy[{other}]" for other in range(3)])
    assert len(edges) == 3 * (1 + 1 + 3)
    hosts = {copy.name: copy.node.host for copy in program.crew}
    assert [hosts[f"act_and_learn[{rank}]"] for rank in range(6)] == [f"host{rank // 2}" for rank in range(6)]
    assert [hosts[f"carry[{i}]"] for i in range(6)] == [f"host{i // 2}" for i in range(6)]
    assert {copy.node.make for copy in program.crew} == {act_and_learn, carry, watch}
    assert [host.cpus for host in program.hosts.values()] == [2, 2, 2]


def test_pala_as_mermaid() -> None:
    program = PALA(hosts=2, learners=2).program(a_task())
    lines = program.mermaid().splitlines()
    for h in range(2):
        frame = lines[1 + 6 * h : 7 + 6 * h]
        assert frame[0] == f'  subgraph h{h}["host{h}"]'
        assert frame[1].strip().startswith(f'w{3 * h}(["act_and_learn[{2 * h}:{2 * h + 2}] x2')
        assert frame[2].strip().startswith(f'w{3 * h + 1}(["carry[{2 * h}:{2 * h + 2}] x2')
        assert frame[3].strip().startswith(f'w{3 * h + 2}(["watch[{h}] x1')
        assert frame[4].strip() == f's{h}[("Proxy[{h}]")]'
        assert frame[5] == "  end"
    assert sorted(lines[13:]) == sorted(
        [
            "  w0 --- s0",
            "  w1 --- s0",
            "  w1 --- s1",
            "  w2 --- s0",
            "  w3 --- s1",
            "  w4 --- s1",
            "  w4 --- s0",
            "  w5 --- s1",
        ]
    )
    assert repr(bytes(program.services[0].kwargs["token"])) not in program.mermaid()
