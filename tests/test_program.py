"""Wiring is data: names, edges, figures and handles come from it alone."""

from __future__ import annotations

import os
import re
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gossamer import program as program_module
from gossamer import runtime
from gossamer.program import Host, Program, Ref, bind, refs
from gossamer.runtime import Context


class Fifo:
    def __init__(self, capacity: int) -> None:
        self.capacity, self.items = capacity, deque[int]()

    def put(self, item: int) -> None:
        self.items.append(item)

    def get(self) -> int:
        return self.items.popleft()


class Latest:
    pass


class Inference:
    def __init__(self, theta: Latest) -> None:
        self.theta = theta


@dataclass(frozen=True)
class Broadcast:
    latest: Latest
    inner: Any = None


def act(ctx: Context, queue: Any, theta: Any) -> None: ...


def learn(ctx: Context, queue: Fifo, *, exchange: Broadcast) -> None: ...


def alone(ctx: Context, steps: int) -> None: ...


def impala(hosts: int = 2, actors: int = 4) -> Program:
    program = Program("impala")
    with program.host("learner", gpus=1):
        theta = program.service(Latest)()
        queue = program.service(Fifo)(capacity=8)
        program.worker(learn)(queue, exchange=Broadcast(theta))
    for host in range(hosts):
        with program.host(f"actors{host}", cpus=actors):
            program.worker(act, copies=actors)(queue, [Broadcast(theta)])
    return program


def test_edges_are_the_handles_that_workers_hold_wherever_they_stand_in_the_arguments() -> None:
    assert impala().edges() == [
        ("learn", "Fifo"),  # an argument
        ("learn", "Latest"),  # in a dataclass that is a keyword argument
        ("act[0:4]", "Fifo"),
        ("act[0:4]", "Latest"),  # in a dataclass in a list
        ("act[4:8]", "Fifo"),
        ("act[4:8]", "Latest"),
    ]


def test_another_loop_stands_in_with_the_name_and_the_arguments_of_the_one_that_it_replaces() -> None:
    program = impala(actors=2)
    replaced = program.with_loops({act: alone})
    assert [(worker.name, worker.make) for worker in replaced.workers] == [
        ("learn", learn),
        ("act[0:2]", alone),
        ("act[2:4]", alone),
    ]
    assert replaced.edges() == program.edges()
    assert list(replaced.hosts) == list(program.hosts)
    replaced.worker(act)(1, 2)
    assert [worker.make for worker in program.workers] == [learn, act, act]  # as it was


def test_a_handle_held_twice_is_one_edge_and_a_services_own_handles_are_none() -> None:
    program = Program("twice")
    theta = program.service(Latest)()
    predictor = program.service(Inference)(theta)
    program.worker(act)(Fifo(1), (predictor, predictor))
    assert program.edges() == [("act", "Inference")]
    assert program.services[1].refs == [Ref(0)]


def test_several_services_or_workers_of_a_kind_are_told_apart() -> None:
    program = Program("ring")
    inboxes = [program.service(Fifo)(1) for _ in range(3)]
    program.service(Latest)()
    for i in range(3):
        program.worker(act)(inboxes[i], inboxes[(i + 1) % 3])
    assert [service.name for service in program.services] == ["Fifo[0]", "Fifo[1]", "Fifo[2]", "Latest"]
    assert program.edges() == [
        ("act[0]", "Fifo[0]"),
        ("act[0]", "Fifo[1]"),
        ("act[1]", "Fifo[1]"),
        ("act[1]", "Fifo[2]"),
        ("act[2]", "Fifo[2]"),
        ("act[2]", "Fifo[0]"),
    ]


def test_every_running_worker_has_a_name_and_a_rank_of_its_own_across_hosts() -> None:
    crew = impala(hosts=2, actors=2).crew
    assert [(copy.name, copy.rank, copy.copies, copy.node.host) for copy in crew] == [
        ("learn", 0, 1, "learner"),
        ("act[0]", 0, 4, "actors0"),
        ("act[1]", 1, 4, "actors0"),
        ("act[2]", 2, 4, "actors1"),
        ("act[3]", 3, 4, "actors1"),
    ]


def test_hosts_hold_what_was_wired_inside_and_main_holds_the_rest() -> None:
    program = Program("hosts")
    program.worker(alone)(1)
    with program.host("outer", gpus=2):
        with program.host("inner", cpus=0.5):
            program.worker(alone)(2)
        program.worker(alone)(3)
    program.worker(alone)(4)
    assert [(worker.args, worker.host) for worker in program.workers] == [
        ((1,), "main"),
        ((2,), "inner"),
        ((3,), "outer"),
        ((4,), "main"),
    ]
    assert list(program.hosts.values()) == [Host("main"), Host("outer", 1, 2), Host("inner", 0.5, 0)]


def test_main_is_no_host_of_a_program_that_names_all_of_its_hosts() -> None:
    assert list(impala().hosts) == ["learner", "actors0", "actors1"]


def test_a_host_entered_again_must_need_the_same() -> None:
    program = Program("again")
    with program.host("a", gpus=1):
        pass
    with program.host("a", gpus=1):
        pass
    with pytest.raises(ValueError, match=r"'a'.*gpus=1.*gpus=2"), program.host("a", gpus=2):
        pass


def test_a_worker_with_arguments_bound_to_it_has_the_name_of_its_function() -> None:
    program = Program("bound")
    program.worker(partial(partial(act, theta=None)), copies=2)(queue=None)
    program.service(partial(Fifo, 3))()
    assert [node.name for node in (*program.workers, *program.services)] == ["act", "Fifo"]


def test_bad_counts_are_refused_by_name() -> None:
    program = Program("bad")
    with pytest.raises(ValueError, match=r"act: copies=0"):
        program.worker(act, copies=0)
    with pytest.raises(ValueError, match=r"'h'.*gpus=-1"), program.host("h", gpus=-1):
        pass


def test_mermaid_draws_a_lone_worker_without_a_frame() -> None:
    program = Program("paac")
    program.worker(alone)(steps=3)
    assert program.mermaid() == 'flowchart LR\n  w0(["alone x1<br/>steps=3"])'


def test_parts_are_what_a_worker_was_wired_with_besides_services() -> None:
    program = Program("parts")
    theta = program.service(Latest)()
    program.worker(learn)(Fifo(1), exchange=Broadcast(theta))
    program.worker(alone)(steps=3)
    assert [worker.parts for worker in program.workers] == [["Fifo"], ["steps=3"]]


def test_mermaid_draws_workers_stores_and_who_holds_whom() -> None:
    program = Program("ga3c")
    theta = program.service(Latest)()
    predictor = program.service(Inference)(theta)
    program.worker(act, copies=8)(predictor, theta)
    assert program.mermaid().splitlines() == [
        "flowchart LR",
        '  w0(["act x8"])',
        '  s0[("Latest")]',
        '  s1[("Inference")]',
        "  w0 --- s1",
        "  w0 --- s0",
        "  s1 --- s0",
    ]


def test_mermaid_frames_hosts() -> None:
    assert impala(hosts=1).mermaid().splitlines() == [
        "flowchart LR",
        '  subgraph h0["learner"]',
        '    w0(["learn x1"])',
        '    s0[("Latest")]',
        '    s1[("Fifo")]',
        "  end",
        '  subgraph h1["actors0"]',
        '    w1(["act x4"])',
        "  end",
        "  w0 --- s1",
        "  w0 --- s0",
        "  w1 --- s1",
        "  w1 --- s0",
    ]


WIRING = """
from gossamer.program import Program
from gossamer.runtime import Context, Wait, waits

class Fifo:
    def __init__(self, capacity: int) -> None: ...
    @waits
    def get(self, n: int) -> Wait[list[int]]:
        yield
        return [0] * n

def act(ctx: Context, queue: Fifo, *, steps: int) -> None:
    taken: list[int] = queue.get(1)
    queue.get("one")  # line 14

program = Program("typed")
queue: Fifo = program.service(Fifo)(capacity=8)
program.worker(act, copies=2)(queue, steps=3)
program.service(Fifo)(size=8)  # line 19
program.worker(act)(queue)  # line 20
program.worker(act)(3, steps=3)  # line 21
"""


def test_wiring_is_checked_against_signatures_before_anything_runs(tmp_path: Path) -> None:
    mypy = pytest.importorskip("mypy.api")
    package, wiring = tmp_path / "gossamer", tmp_path / "wiring.py"
    package.mkdir()
    for module in (program_module, runtime):  # alone: nothing else to be read
        (package / Path(module.__file__).name).write_text(Path(module.__file__).read_text())
    wiring.write_text(WIRING)
    options = ["--strict", "--config-file=", f"--cache-dir={os.devnull}"]
    out, _, _ = mypy.run([*options, str(wiring), *map(str, package.iterdir())])
    assert re.findall(r"(\w+)\.py:(\d+): error", out) == [("wiring", line) for line in ("14", "19", "20", "21")], out


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Seen:
    of: Any
    label: str = field(init=False)

    def __post_init__(self) -> None:
        self.label = f"seen {self.of}"


def test_bind_puts_handles_in_every_place_where_refs_finds_one() -> None:
    tree = {"a": [Ref(2), 1], "b": Pair((Ref(0),), Seen(Ref(1))), "c": Ref(2), "d": Ref}
    bound = bind(tree, lambda ref: f"live{ref.index}")
    assert bound == {"a": ["live2", 1], "b": Pair(("live0",), Seen("live1")), "c": "live2", "d": Ref}
    assert type(bound["b"]) is Pair
    assert bound["b"].right.label == "seen live1"
    assert refs(tree) == [Ref(2), Ref(0), Ref(1)]


def test_bind_copies_containers_and_dataclasses_and_passes_the_rest_on() -> None:
    queue, tree = Fifo(1), {"list": [1], "data": Seen(3)}
    bound = bind((tree, queue), lambda ref: None)
    assert bound[0] == tree
    assert bound[0]["list"] is not tree["list"]
    assert bound[0]["data"] is not tree["data"]
    assert bound[1] is queue
