"""What a member rounds off: it owes it, sends it later, and never more than half a step of the rounding's scale."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from some_messages import LAYOUT, TOKEN, Learns, Local, Place, Vector
from torch.optim import SGD
from torch.testing import assert_close

from gossamer.exchange import Gossip, Mailboxes
from gossamer.exchange.gossip.feedback import Feedback
from gossamer.exchange.gossip.formats import BLOCK, Format, rounded
from gossamer.exchange.gossip.graphs import Complete
from gossamer.exchange.gossip.messages import Message, Parcel, merge
from gossamer.exchange.gossip.sparse import Select, Sparse
from gossamer.exchange.proxy.wire import decode, encode

SIZE = BLOCK + 16


def normal(seed: int, size: int = SIZE) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def test_what_is_rounded_off_is_sent_with_the_next_message() -> None:
    # The scale of int8 is 127 / 127 = 1. Of 0.25, nothing is sent but every fourth time: round(0.75) = 1, owed -0.25
    values = torch.tensor([127.0, 0.25])
    feedback, sent = Feedback("int8", torch.zeros(2)), list[float]()
    for _ in range(8):
        q, _, error = feedback.rounded(values, None, 1.0)
        sent.append(float(q[1]))
        assert error == pytest.approx(abs(sent[-1] - 0.25))
    assert sum(sent) == 8 * 0.25
    assert feedback.owed is not None
    assert feedback.owed.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("form", ["bf16", "int8"])
@pytest.mark.parametrize("receivers", [1, 3])
def test_what_has_been_sent_and_what_is_owed_is_what_should_have_been_sent(form: Format, receivers: int) -> None:
    feedback, due, sent = Feedback(form, torch.zeros(SIZE)), torch.zeros(SIZE), torch.zeros(SIZE)
    for k in range(20):
        mass = receivers * 0.5 ** (k % 3)  # as push-sum's weights change
        x = normal(k)
        q, _, _ = feedback.rounded(x, None, mass)
        due, sent = due + mass * x, sent + mass * q
    assert feedback.owed is not None
    assert_close(sent + feedback.owed, due, atol=1e-4, rtol=1e-5)
    step = 4 / 127 if form == "int8" else 4 / 256  # all values are below 4
    assert feedback.owed.abs().max() < 1.1 * receivers * step


def test_a_message_of_some_parameters_pays_what_is_owed_of_them_alone() -> None:
    feedback, places = Feedback("int8", torch.full((SIZE,), 0.5)), torch.arange(0, SIZE, 2)
    q, _, _ = feedback.rounded(normal(0)[places], places, 1.0)
    assert feedback.owed is not None
    assert_close(q + feedback.owed[places], normal(0)[places] + 0.5)
    assert feedback.owed[1::2].unique().tolist() == [0.5]


def test_a_message_without_weight_pays_nothing() -> None:
    feedback = Feedback("int8", torch.full((4,), 0.25))
    assert_close(feedback.rounded(torch.ones(4), None, 0.0)[0], torch.ones(4))
    assert feedback.owed is not None
    assert feedback.owed.unique().tolist() == [0.25]


class Sent(Mailboxes):
    """Mailboxes that keep what was sent."""

    def __init__(self) -> None:
        super().__init__(2)
        self.sent = list[Message]()

    def send(self, message: Message, to: Any) -> None:
        self.sent.append(message)
        super().send(message, to)


def a_link(post: Mailboxes, vector: torch.Tensor, **more: Any) -> tuple[Any, Any]:
    model = Vector(vector)
    model.value.grad = torch.zeros(len(vector))
    gossip: Any = Gossip(post, period=0, rounding="int8", **more)
    return gossip.join(Place(0), Learns(model)), Local(SGD(model.parameters(), 1.0))


def test_receivers_on_all_hosts_get_the_same_numbers_and_do_not_cancel_their_error() -> None:
    post, x = Sent(), normal(1)
    link, local = a_link(post, x)
    link.step(local)
    (here,) = post.sent
    packet = encode(Parcel(here, (1,)), TOKEN, LAYOUT, "fp32")
    there = decode(packet, TOKEN, LAYOUT)
    assert isinstance(there, Parcel)
    assert torch.equal(there.message.parameters, here.parameters)
    assert torch.equal(here.parameters, rounded(x, "int8"))
    assert (here.kept, there.message.kept, there.message.format) == (True, True, "int8")
    assert here.error == there.message.error == pytest.approx(float((here.parameters - x).norm()))
    assert here.nbytes() == 2 * (BLOCK + 4)  # of two blocks
    assert packet.nbytes < here.nbytes() + 200
    plain = replace(here, packed=None)  # as couriers get it, which round
    forms: list[Format] = ["fp32", "bf16", "int8"]
    assert [plain.nbytes(form) for form in forms] == [4 * SIZE, 2 * SIZE, 2 * (BLOCK + 4)]
    other = Gossip(post, period=0).join(Place(1), Learns(model := Vector(torch.zeros(SIZE))))  # type: ignore[arg-type]
    model.value.grad = torch.zeros(SIZE)
    other.step(Local(SGD(model.parameters(), 1.0)))  # type: ignore[arg-type]
    assert_close(model.value.detach(), here.parameters / 2)


@pytest.mark.parametrize("select", ["rotation", "changed"])
def test_what_is_owed_is_part_of_the_state_where_parameters_do_not_keep_it(select: Select) -> None:
    more: dict[str, Any] = {"sparse": Sparse(0.5, select)}
    if select == "changed":
        more |= {"graph": Complete(), "lock_step": True}
    post = Sent()
    post.leave(1)
    link, local = a_link(post, normal(2), **more)
    link.step(local)
    assert ("owed" in link.state_dict()) == (select == "rotation")


def test_merged_messages_are_sent_without_rounding() -> None:
    """Else what is rounded off of them would be lost: their sender does not know of it."""
    q, packed, _ = Feedback("int8", None).rounded(normal(3), None, 1.0)
    parts = [Message(0, k, 0, 0.5, 0.0, q * k, format="int8", kept=True, packed=packed) for k in (1, 3)]
    merged = merge(parts)
    got = decode(encode(Parcel(merged, (1,)), TOKEN, LAYOUT, "fp32"), TOKEN, LAYOUT)
    assert isinstance(got, Parcel)
    assert torch.equal(got.message.parameters, merged.parameters)
    assert got.message.kept
