"""Hosts fit on nodes one by one, and share GPUs where there are too few."""

from __future__ import annotations

import pytest

from gossamer.launch.ray.errors import LackOfResources
from gossamer.launch.ray.placement import placed
from gossamer.program import Host

ONE, TWO = {"a": (16.0, 1.0)}, {"a": (16.0, 2.0)}
APART = {"a": (4.0, 0.0), "b": (2.0, 1.0)}
LEARNERS = [Host(f"host{i}", 2, 1) for i in range(7)]


@pytest.mark.parametrize(
    ("hosts", "nodes", "gpus", "sharing"),
    [
        ([Host("x", 3), Host("y", 1), Host("z", 2, 1)], APART, [1, 0, 0], 1),  # 3 and 1 on a, 2 and the GPU on b
        (LEARNERS[:1], ONE, [1], 1),
        (LEARNERS[:2], ONE, [0.5, 0.5], 2),
        (LEARNERS[:3], ONE, [0.3333] * 3, 3),
        (LEARNERS[:2], TWO, [1, 1], 1),
        (LEARNERS[:3], TWO, [0.5] * 3, 2),  # two on one GPU, one on the other
        (LEARNERS[:7], TWO, [0.25] * 7, 4),  # four and three
        ([Host("learner", 1, 1), Host("actors", 8)], ONE, [1, 0], 1),
        ([Host("large", 1, 2), Host("small", 1, 1), Host("other", 1, 1)], {"a": (4.0, 3.0)}, [2, 0.5, 0.5], 2),
        (LEARNERS[:3], {"a": (2.0, 1.0), "b": (4.0, 1.0)}, [0.5] * 3, 2),  # one on a, two on b
    ],
)
def test_as_few_hosts_share_a_gpu_as_possible(
    hosts: list[Host], nodes: dict[str, tuple[float, float]], gpus: list[float], sharing: int
) -> None:
    found = placed(hosts, nodes)
    assert [host.gpus for host in found.hosts] == gpus
    assert found.sharing == sharing
    assert {(host.name, host.cpus) for host in found.hosts} == {(host.name, host.cpus) for host in hosts}


def test_it_says_which_hosts_share() -> None:
    assert placed(LEARNERS[:1], ONE).note is None
    assert placed(LEARNERS[:2], ONE).note == "up to 2 hosts share a GPU: host0, host1"


@pytest.mark.parametrize(
    ("hosts", "nodes", "message"),
    [
        ([Host("x", 5)], APART, r"^host 'x' needs 5 cpus, 0 gpus on one node, which"),  # six in all, and yet
        (
            [Host("x", 3), Host("y", 3)],
            APART,
            r"^host 'y' needs 3 cpus, 0 gpus on one node beside the program's .*; 1 of the 2 hosts fit: use fewer",
        ),
        (LEARNERS[:1], {"a": (4.0, 0.0)}, r"^host 'host0' needs 2 cpus, 1 gpus on one node, which .* 4 cpus, 0 gpus$"),
        (
            LEARNERS[:3],
            {"a": (4.0, 1.0)},
            r"^host 'host2' needs 2 cpus, 1 gpus, which it may share, on one node beside",
        ),
        ([Host("x", 1, 2)], ONE, r"^host 'x' needs 1 cpus, 2 gpus on one node, which"),
        (LEARNERS[:1], {}, r"it has no nodes$"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(
    hosts: list[Host], nodes: dict[str, tuple[float, float]], message: str
) -> None:
    with pytest.raises(LackOfResources, match=message):
        placed(hosts, nodes)
