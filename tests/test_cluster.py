"""Programs on a cluster of several machines: one is killed, the network is cut, the cluster lets nobody in."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from namespaces import Net, hosts, ip, missing

from gossamer.launch.ray.errors import ClusterUnreachable, LackOfResources
from gossamer.launch.ray.launcher import Ray
from gossamer.program import Program
from gossamer.runtime import Answer, Context, Silent, Unreachable

# Not by importing it: some of this is about what happens before that.
pytestmark = [
    pytest.mark.hosts,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (the extra `ray`)"),
]

HERE = Path(__file__).parent
SECONDS = 300.0  # after which a test that waits for something fails
THREE = 3


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    """Three machines of one cluster, with room for one of the program's hosts each; and one outside of it."""
    if why := missing():
        pytest.skip(why)
    with hosts(THREE + 1) as made:
        for host in range(THREE):
            made.start(host)
        yield made


class Visits:
    """Counts, for each host, the calls that came from it."""

    def __init__(self) -> None:
        self.counts = [0] * THREE

    def come(self, host: int) -> None:
        self.counts[host] += 1

    def so_far(self) -> list[int]:
        return self.counts


def visit(ctx: Context, here: int, places: Sequence[Visits]) -> None:
    """Call every host in turn, and say when one stops or begins to answer; count the rounds, and save the count."""
    import ray

    rounds, answers = ctx.restored() or 0, dict.fromkeys(range(THREE), False)
    ctx.report({"up": ctx.restarts, "rounds": rounds, "at": ray.util.get_node_ip_address()})
    while not ctx.stopped:
        for there, place in enumerate(places):
            try:
                place.come(here)
                now = True
            except Unreachable:
                now = False
            if now is not answers[there]:
                answers[there] = now
                ctx.report({"to": there, "answers": now})
        rounds += 1
        ctx.claim(0, lambda here=rounds: here)
        ctx.sleep(0.05)
    ctx.report({"rounds": rounds, "visits": places[here].so_far()})


class Teller(Silent):
    """Prints what is reported, wants every state at once, and ends the program when a file is there."""

    def __init__(self, end: str) -> None:
        self.end, self.claims = Path(end), Counter[str]()

    def report(self, worker: str, record: Any) -> None:
        sys.stdout.write(json.dumps({"worker": worker, **record}) + "\n")  # at once: several threads do
        sys.stdout.flush()

    def claim(self, worker: str, steps: int, *, idle: bool = True) -> int | Answer:
        self.claims[worker] += idle
        return Answer.SAVE if idle and self.claims[worker] % 2 else 0

    def save(self, worker: str, state: Any) -> None:
        self.report(worker, {"saved": state})

    def stopping(self) -> bool:
        return self.end.exists()


def drive(cluster: str, end: str) -> None:
    """The driver of the tests, on the first host."""
    program = Program("visits")
    places = []
    for host in range(THREE):
        with program.host(f"host{host}", cpus=2):
            places.append(program.service(Visits)())
    for host in range(THREE):
        with program.host(f"host{host}", cpus=2):
            program.worker(visit)(host, places)
    Ray(cluster, call_seconds=5.0)(program, Teller(end))


class Driver:
    """`drive`, running."""

    def __init__(self, net: Net, name: str) -> None:
        self.net, self.end = net, net.folder / f"end-{name}"
        self.name = name
        script = f"import test_cluster; test_cluster.drive({net.cluster!r}, {str(self.end)!r})"
        path = f"{HERE}:{HERE.parent}"
        self.process = net.run(0, [sys.executable, "-c", script], to=name, PYTHONPATH=path)

    def said(self, worker: int | None = None) -> list[dict[str, Any]]:
        """What has been reported, by that worker."""
        return [
            line for line in self.net.records(0, self.name) if worker is None or line["worker"] == f"visit[{worker}]"
        ]

    def until(self, what: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not what():
            assert self.process.poll() is None, self.net.output(0, self.name)
            assert time.monotonic() < end, self.net.output(0, self.name)
            time.sleep(0.1)

    def heard(self, worker: int, to: int, answers: list[bool]) -> bool:
        """Whether these are the answers, in turn, that a worker has had from a host."""
        return [line["answers"] for line in self.said(worker) if line.get("to") == to] == answers

    def finish(self) -> None:
        self.end.touch()
        assert self.process.wait(timeout=SECONDS) == 0, self.net.output(0, self.name)


def everybody_answers(driver: Driver) -> bool:
    return all(driver.heard(one, other, [True]) for one in range(THREE) for other in range(THREE))


def place_of(driver: Driver, net: Net) -> dict[int, int]:
    """Machine -> which of the program's hosts runs there."""
    at = {line["at"]: int(line["worker"][6]) for line in driver.said() if "at" in line}
    return {machine: at[net.address(machine)] for machine in range(THREE)}


def test_a_machine_that_is_killed_and_comes_back_goes_on_from_what_it_saved(net: Net) -> None:
    driver = Driver(net, "killed")
    driver.until(lambda: everybody_answers(driver))
    place = place_of(driver, net)
    assert sorted(place) == sorted(place.values()) == [0, 1, 2]  # one host on each machine
    others, mortal = [place[0], place[2]], place[1]
    driver.until(lambda: any(line.get("saved", 0) > 0 for line in driver.said(mortal)))
    net.kill(1)
    driver.until(lambda: all(driver.heard(other, mortal, [True, False]) for other in others))
    net.start(1)
    driver.until(lambda: all(driver.heard(other, mortal, [True, False, True]) for other in others))
    driver.finish()
    ups = [line for line in driver.said(mortal) if "up" in line]
    assert [line["up"] for line in ups] == [0, 1]
    assert ups[1]["rounds"] > 0  # what it had saved
    for other in others:
        assert [line["up"] for line in driver.said(other) if "up" in line] == [0]
        assert driver.heard(other, others[0], [True])  # and never lost each other
        assert driver.heard(other, others[1], [True])


def test_a_network_that_is_cut_and_heals_costs_nobody_anything_but_the_calls(net: Net) -> None:
    driver = Driver(net, "cut")
    driver.until(lambda: everybody_answers(driver))
    place = place_of(driver, net)
    here, there = [place[0], place[1]], place[2]
    net.cut([0, 1], [2])
    driver.until(lambda: all(driver.heard(one, there, [True, False]) for one in here))
    time.sleep(10.0)  # so that the other side has noticed, too: it cannot tell us
    net.heal()
    driver.until(lambda: all(driver.heard(one, there, [True, False, True]) for one in here))
    driver.until(lambda: all(driver.heard(there, one, [True, False, True]) for one in here))  # told late, not lost
    driver.finish()
    assert [line["up"] for host in range(THREE) for line in driver.said(host) if "up" in line] == [0, 0, 0]
    rounds = [next(line["rounds"] for line in driver.said(host) if "visits" in line) for host in range(THREE)]
    for host in range(THREE):
        visits = next(line["visits"] for line in driver.said(host) if "visits" in line)
        assert visits[host] == rounds[host]
        assert all(0 < came <= went + 1 for came, went in zip(visits, rounds, strict=True))  # none came twice


def refused(cluster: str, cpus: float) -> None:
    """What is said of a cluster that does not do."""
    program = Program("refused")
    with program.host("big", cpus=cpus):
        program.worker(visit)(0, [])
    with pytest.raises((ClusterUnreachable, LackOfResources)) as caught:
        Ray(cluster)(program)
    print(json.dumps([type(caught.value).__name__, str(caught.value)]))


WITHOUT = ["env", "-u", "RAY_AUTH_TOKEN", "-u", "RAY_AUTH_MODE"]
ALONE = ["unshare", "--pid", "--fork", "--mount-proc"]  # Ray looks for its nodes among the processes it sees
REFUSALS = {
    "lack": ([], 0, "LackOfResources", "'big' needs 3 cpus, 0 gpus on one node, which the cluster does not have"),
    "wrong token": (["env", f"RAY_AUTH_TOKEN={'0' * 64}"], 0, "ClusterUnreachable", "the token is missing or wrong"),
    "no token": (WITHOUT, 0, "ClusterUnreachable", "the token is missing or wrong"),
    "no token file": (
        [*WITHOUT, "RAY_AUTH_TOKEN_PATH=/nowhere"],
        0,
        "ClusterUnreachable",
        "the token is missing or wrong",
    ),
    "outside": (ALONE, THREE, "ClusterUnreachable", "this machine has to be a node of it"),
}


@pytest.mark.parametrize(("env", "host", "kind", "text"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_cluster_that_does_not_do_gets_one_line(net: Net, env: list[str], host: int, kind: str, text: str) -> None:
    name, value = ask(net, host, env, f"refused({net.cluster!r}, 3)")
    assert name == kind
    assert text in value
    assert "\n" not in value
    if kind == "LackOfResources":
        assert all(f"{net.address(host)} (" in value for host in range(THREE))  # what there is


def ask(net: Net, host: int, env: list[str], call: str) -> list[str]:
    """The last line that the call of a function of this module prints on that host, with other variables."""
    command = [*env, sys.executable, "-c", f"import test_cluster; test_cluster.{call}"]
    process = net.run(host, command, to="asked", PYTHONPATH=f"{HERE}:{HERE.parent}")
    assert process.wait(timeout=SECONDS) == 0, net.output(host, "asked")
    said: list[str] = json.loads(net.output(host, "asked").splitlines()[-1])
    return said


def test_a_token_in_its_file_is_enough(net: Net) -> None:
    place = net.folder / "0" / ".ray"  # the home of that machine
    place.mkdir()
    (place / "auth_token").write_text(net.token)
    try:
        assert ask(net, 0, WITHOUT, f"refused({net.cluster!r}, 3)")[0] == "LackOfResources"  # it was let in
    finally:
        (place / "auth_token").unlink()


def test_nothing_is_left_of_hosts_however_they_end() -> None:
    if why := missing():
        pytest.skip(why)

    def fail() -> None:
        with hosts(2) as some:
            left.extend([some, some.run(1, ["sleep", "600"])])
            while not some.pids(1):
                time.sleep(0.01)
            raise KeyError("by hand")

    left = list[Any]()
    with pytest.raises(KeyError, match="by hand"):
        fail()
    net, sleeper = left
    assert sleeper.poll() == -9
    assert not net.folder.exists()
    assert net.prefix not in ip("netns", "list")
