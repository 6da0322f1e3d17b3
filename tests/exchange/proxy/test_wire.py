"""Parameters as bytes: what goes in comes out, and nothing else is let in."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gossamer.exchange.gossip.formats import BLOCK, FORMATS, Format, rounded
from gossamer.exchange.gossip.messages import Hello, Message, Parcel, Pulse, merge
from gossamer.exchange.proxy.wire import HEADER, Refused, decode, encode, peek

TOKEN, LAYOUT = b"0123456789abcdef", b"layout-1"


def a_message(size: int = 1000, seed: int = 0, **more: object) -> Message:
    vector = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    return Message(3, 17, 4, 0.5, 1_700_000_000.25, vector, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 64, BLOCK, BLOCK + 1, 1000])
def test_float32_arrives_as_it_was(size: int) -> None:
    sent = Parcel(a_message(size), (0, 7))
    got = decode(encode(sent, TOKEN, LAYOUT), TOKEN, LAYOUT)
    assert isinstance(got, Parcel)
    assert got.receivers == (0, 7)
    assert torch.equal(got.message.parameters, sent.message.parameters)
    m = got.message
    assert (m.sender, m.iteration, m.epoch, m.weight, m.published) == (3, 17, 4, 0.5, 1_700_000_000.25)
    assert (m.error, m.format) == (0.0, "fp32")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("size", [1, BLOCK + 1])
def test_a_sparse_message_has_four_bytes_more_for_the_index_of_each_parameter(form: Format, size: int) -> None:
    sent = a_message(size, places=torch.randperm(10_000)[:size].sort().values)
    packet, plain = (encode(Parcel(m, (1,)), TOKEN, LAYOUT, form) for m in (sent, a_message(size)))
    assert packet.nbytes == plain.nbytes + 4 * size
    got = decode(packet, TOKEN, LAYOUT)
    assert isinstance(got, Parcel)
    assert got.message.places is not None
    assert torch.equal(got.message.places, sent.places)  # type: ignore[arg-type]
    assert torch.equal(got.message.parameters, rounded(sent.parameters, form))
    with pytest.raises(Refused):
        decode(packet[:-4], TOKEN, LAYOUT)


@pytest.mark.parametrize(("form", "bytes_each"), [("fp32", 4), ("bf16", 2), ("int8", 1 + 4 / BLOCK)])
@pytest.mark.parametrize("size", [1, BLOCK, 1001])
def test_what_is_rounded_says_by_how_much(form: Format, bytes_each: float, size: int) -> None:
    sent = a_message(size)
    packet = encode(Parcel(sent, (1,)), TOKEN, LAYOUT, form)
    got = decode(packet, TOKEN, LAYOUT)
    assert isinstance(got, Parcel)
    assert torch.equal(got.message.parameters, rounded(sent.parameters, form))
    assert got.message.error == pytest.approx(float((got.message.parameters - sent.parameters).norm()))
    assert got.message.format == form
    blocks = -(-size // BLOCK) * BLOCK if form == "int8" else size
    assert packet.nbytes == 128 + blocks * bytes_each  # a header and one receiver: 128 bytes


@pytest.mark.parametrize(("form", "bytes_saved"), [("fp32", 0), ("bf16", 2 * 1001), ("int8", 3 * 1001 - 23 - 4 * 4)])
@pytest.mark.parametrize("sparse", [False, True])
def test_running_statistics_arrive_as_they_were_in_every_format(form: Format, bytes_saved: int, sparse: bool) -> None:
    """The last 16 of 1,017 parameters, too small to be told from 0 beside the others. The others are 4 blocks of int8,
    the last one with 23 elements to spare."""
    places = torch.arange(1017) * 2 if sparse else None
    sent = a_message(1017, exact=16, places=places)
    sent.parameters[-16:] *= 1e-9
    packet = encode(Parcel(sent, (1,)), TOKEN, LAYOUT, form)
    got = decode(packet, TOKEN, LAYOUT)
    assert isinstance(got, Parcel)
    assert torch.equal(got.message.parameters[-16:], sent.parameters[-16:])
    assert torch.equal(got.message.parameters[:-16], rounded(sent.parameters[:-16], form))
    assert got.message.exact == 16
    assert packet.nbytes == 128 + 4 * 1017 - bytes_saved + 4 * 1017 * sparse
    assert sent.nbytes(form) == packet.nbytes - 128
    with pytest.raises(Refused):
        decode(packet[:-4], TOKEN, LAYOUT)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=600))
@example([1.740358322311007e-37])  # the step would be below the least normal number
def test_int8_is_off_by_half_a_step_of_its_block_at_most(values: list[float]) -> None:
    vector = torch.tensor(values)
    error = (rounded(vector, "int8") - vector).abs()
    for start in range(0, len(values), BLOCK):
        largest = vector[start : start + BLOCK].abs().max()
        assert error[start : start + BLOCK].max() <= largest / 127 * 0.5001 + 1e-38  # steps are normal numbers


def test_bfloat16_is_off_by_a_256th_at_most() -> None:
    vector = torch.randn(10_000)
    assert ((rounded(vector, "bf16") - vector).abs() <= vector.abs() / 256).all()


def test_a_sign_of_life() -> None:
    hello = Hello(2, (Pulse(2, 9, (4, 5), (77, 0)), Pulse(0, 7, (), ()), Pulse(1, 0, (2,), (3,))), LAYOUT)
    assert decode(encode(hello, TOKEN, LAYOUT), TOKEN, b"another!") == hello  # who asks compares the layouts


def test_wrong_token_layout_or_length_is_refused() -> None:
    packet = encode(Parcel(a_message(), (1, 2)), TOKEN, LAYOUT)
    with pytest.raises(Refused, match="token"):
        decode(packet, b"x" * 16, LAYOUT)
    with pytest.raises(Refused, match="layout"):
        decode(packet, TOKEN, b"another!")
    for length in (0, 10, HEADER.size, HEADER.size + 3, packet.size - 1):
        with pytest.raises(Refused, match="truncated"):
            peek(packet[:length], TOKEN)
    with pytest.raises(Refused, match="truncated"):
        decode(np.concatenate([packet, packet[:1]]), TOKEN, LAYOUT)
    for odd in (None, b"GSMR", packet.view(np.int8), packet.reshape(2, -1)):
        with pytest.raises(Refused, match="not a packet"):
            decode(odd, TOKEN, LAYOUT)  # type: ignore[arg-type]


@given(place=st.integers(0, 10**6), bit=st.integers(0, 7), form=st.sampled_from(["fp32", "bf16", "int8"]))
def test_no_flipped_bit_goes_unnoticed(place: int, bit: int, form: Format) -> None:
    packet = encode(Parcel(a_message(300), (1,)), TOKEN, LAYOUT, form)
    packet[place % packet.size] ^= 1 << bit
    with pytest.raises(Refused):
        decode(packet, TOKEN, LAYOUT)


@settings(max_examples=500)
@given(noise=st.binary(max_size=400), length=st.integers(0, 400))
def test_noise_is_refused_whatever_it_begins_with(noise: bytes, length: int) -> None:
    honest = encode(Parcel(a_message(40), (1,)), TOKEN, LAYOUT)[:length]
    with pytest.raises(Refused):
        decode(np.concatenate([honest, np.frombuffer(noise + b"!", np.uint8)]), TOKEN, LAYOUT)


def test_several_messages_of_a_sender_add_up() -> None:
    first, second = a_message(8, 1), a_message(8, 2)
    both = merge([first, second])
    assert both.weight == 1.0
    got = decode(encode(Parcel(both, (1,)), TOKEN, LAYOUT), TOKEN, LAYOUT)
    assert isinstance(got, Parcel)
    assert [m.merged for m in (first, both, got.message)] == [False, True, True]
    torch.testing.assert_close(both.parameters, (first.parameters + second.parameters) / 2)
