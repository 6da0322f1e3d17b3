"""Ray's errors in plain words: no gRPC text, no addresses of actors, one line."""

from __future__ import annotations

import errno
import os

import pytest

pytest.importorskip("ray", reason="Ray is not installed (the extra `ray`)")

from ray import exceptions

from gossamer.launch.base import Crew
from gossamer.launch.ray import launcher
from gossamer.launch.ray.faults import describe
from gossamer.launch.ray.messages import UNAVAILABLE
from gossamer.launch.ray.supervisor import Deployment, Limits, Supervisor
from gossamer.runtime import SILENT

GRPC = (
    "The actor e3ac is unavailable: rpc error: code = 14, failed to connect to all addresses; last error: UNKNOWN: "
    "ipv4:10.0.0.2:1: Connection reset by peer\nRPC Error details: rpc_code: 14"
)
ERRORS = [
    (exceptions.ActorUnavailableError(GRPC, None), "not reachable"),
    (exceptions.RpcError(GRPC, 14), "not reachable"),
    (exceptions.ActorDiedError(), "host process died"),
    (
        exceptions.RayActorError(error_msg="The actor is dead because its worker process has died. x"),
        "host process died",
    ),
    (exceptions.RayActorError(error_msg="The actor died because its node has died. Node Id: f00"), "node died"),
    (exceptions.NodeDiedError("node f00 died"), "node died"),
    (exceptions.GetTimeoutError("no answer from host one"), "timed out"),
    (exceptions.WorkerCrashedError(), "host process died"),
    (exceptions.LocalRayletDiedError(), "Ray on this machine died"),
    (exceptions.TaskCancelledError(), "request cancelled"),
    (exceptions.ObjectLostError("00" * 28, None, ""), "data lost: a node or process that held it died"),
    (ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)), "connection refused"),
    (ConnectionResetError("connection closed by peer"), "connection closed by peer"),
    (TimeoutError("send timed out"), "send timed out"),
    (ConnectionError("first\nsecond"), "first"),
    (OSError(), "OSError"),
]


@pytest.mark.parametrize(("error", "text"), ERRORS)
def test_an_error_is_one_plain_line(error: BaseException, text: str) -> None:
    assert describe(error) == text


def test_every_error_of_ray_that_is_survived_has_plain_words() -> None:
    assert set(UNAVAILABLE) <= {type(error) for error, _ in ERRORS}


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("ConnectionError: Could not find any running Ray instance. Please specify", "no Ray instance runs on this"),
        ("Found multiple active Ray instances: {'10.0.0.1:6379'}. Please", "several Ray instances run on this machine"),
        ("Version mismatch: The cluster was started with:\n    Ray: 2.9", "its versions of Ray or Python differ"),
        (f"E0000 00:00:00 grpc\n{GRPC}", "otherwise"),
        ("", "otherwise"),
    ],
)
def test_what_ray_says_of_a_cluster_is_one_plain_line(text: str, plain: str) -> None:
    assert launcher._summary(text, "otherwise").startswith(plain)


@pytest.mark.parametrize(("up", "messages"), [(True, ["host one does not answer: not reachable"]), (False, [])])
def test_a_host_that_does_not_answer_is_logged_in_one_plain_line_unless_it_still_starts(
    up: bool, messages: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    crew = Crew(SILENT, lambda: None)
    crew.stop()  # so that it does not wait between two attempts
    supervisor = Supervisor(Deployment(crew, None, {"one": None}, Limits(1.0, 1, 1.0, 1.0)), "one", ["work"])
    supervisor._up = up
    for _ in range(2):
        supervisor._no_answer(exceptions.ActorUnavailableError(GRPC, None))
    assert caplog.messages == messages
