"""Wire format of messages between hosts. Pickle is never used.

A packet is one flat buffer: a header of fixed size, integers (the receivers' ranks, or the pulses of a `Hello`), zero
padding to a multiple of 64 bytes, and the body. The body is the vector [P] in one of the number formats (`formats`);
that of a sparse message may have 4 bytes for the index of each element before it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from hmac import compare_digest
from typing import Any

import numpy as np
import torch
from torch import Tensor
from xxhash import xxh3_64

from gossamer.data import Array
from gossamer.exchange.gossip.formats import FORMATS, Format, length, pack, restore, unpack
from gossamer.exchange.gossip.messages import Hello, Message, Parcel, Pulse

# magic, format version, kind, number format, whether there are indices, whether the sender keeps the rounding error,
# whether there are all parameters, whether messages were merged, count of integers, token, layout, sender, epoch,
# iteration, elements, and how many of them are float32 in any format, weight, published, error, checksum (XXH3 of all
# other bytes)
HEADER = struct.Struct("<4sBBB????I16s8sIIQQIdddQ")
MAGIC, VERSION, PARCEL, HELLO = b"GSMR", 6, 1, 2


class Token(bytes):
    """Shared secret (16 bytes) of the hosts of one run. Its `repr` hides the bytes, so printing a program is safe."""

    def __repr__(self) -> str:
        return "<secret>"

    __str__ = __repr__


class Refused(ValueError):
    """A packet was rejected; the message gives the reason."""


def encode(item: Parcel | Hello, token: bytes, layout: bytes, form: Format = "fp32") -> Array:
    """Encode a packet (uint8). `token`: the run's shared secret, 16 bytes; `layout`: `Flat.layout`, 8 bytes; `form`: of
    parameters that their sender has not packed."""
    if isinstance(item, Hello):
        numbers = [n for p in item.pulses for n in (p.host, p.beats, len(p.members), *p.members, *p.sent)]
        kind = (HELLO, 0, False, False, False, False)
        head, body = _head(kind, numbers, token, layout, (item.host, 0, 0, 0, 0, 0.0, 0.0, 0.0)), None
    else:
        m = item.message
        if m.packed is None:
            vector = _on_host(m)
            parts = pack(vector, form, m.exact)
            error = m.error if form == "fp32" else float((restore(parts, form, len(vector), m.exact) - vector).norm())
        else:
            form, parts, error = m.format, _packed(m), m.error
        fields = (m.sender, m.epoch, m.iteration, len(m.parameters), m.exact, m.weight, m.published, error)
        places = [] if m.places is None else [m.places.cpu().to(torch.int32)]
        kind = (PARCEL, FORMATS.index(form), bool(places), m.kept, m.whole, m.merged)
        head, body = _head(kind, item.receivers, token, layout, fields), [*places, *parts]
    return _assembled(head, body or [])


def decoded(
    packets: Iterable[Array], token: bytes, layout: bytes | None, refuse: Callable[[], object]
) -> Iterator[Parcel | Hello]:
    """The contents of packets, in order. `refuse` is called for each that `decode` refuses."""
    for packet in packets:
        try:
            item = decode(packet, token, layout)
        except Refused:
            refuse()
            continue
        yield item


def decode(packet: Array, token: bytes, layout: bytes | None) -> Parcel | Hello:
    """Decode a packet. Parameters in float32 are a view of it, so it must not be modified afterwards. `layout`: None if
    it is not known yet.

    Raises `Refused` if the packet is damaged, belongs to another run, or is a parcel of another layout."""
    peek(packet, token)
    fields = _fields(packet)
    _, _, kind, number, indexed, kept, whole, merged, count, _, theirs, sender, epoch, iteration, size, *_ = fields
    exact, weight, published, error, checksum = fields[-5:]
    if _checksum(packet) != checksum:
        raise Refused("wrong checksum")
    receivers = tuple(np.frombuffer(packet, np.uint32, count, HEADER.size).tolist())
    if kind == HELLO:
        return Hello(sender, _pulses(receivers), theirs)
    if layout is not None and theirs != layout:
        raise Refused("wrong layout")
    body, places = packet[_body_offset(count) :], None
    if indexed:
        places, body = torch.from_numpy(body[: 4 * size].view(np.int32).astype(np.int64)), body[4 * size :]
    vector = unpack(body, size, FORMATS[number], exact)
    how = {"format": FORMATS[number], "places": places, "kept": kept, "whole": whole, "merged": merged, "exact": exact}
    return Parcel(Message(sender, iteration, epoch, weight, published, vector, error, **how), receivers)


def peek(packet: Array, token: bytes) -> int:
    """Check a packet's header and size, and return its kind. Raises `Refused`."""
    if not isinstance(packet, np.ndarray) or packet.dtype != np.uint8 or packet.ndim != 1:
        raise Refused("not a packet")
    if packet.size < HEADER.size or not packet.flags.c_contiguous:
        raise Refused("truncated")
    magic, version, kind, number, indexed, _, _, _, count, theirs, *_, size, exact, _, _, _, _ = _fields(packet)
    if magic != MAGIC or version != VERSION or kind not in (PARCEL, HELLO) or number >= len(FORMATS):
        raise Refused("not a packet of this version")
    if not compare_digest(theirs, token):
        raise Refused("wrong token")
    body = length(size, FORMATS[number], exact) + 4 * size * indexed if kind == PARCEL else 0
    if exact > size or packet.size != _body_offset(count) + body:
        raise Refused("truncated")
    return int(kind)


def contents(packet: Array) -> tuple[int, Format]:
    """The number of parameters in a parcel's packet, and their format."""
    fields = _fields(packet)
    return int(fields[14]), FORMATS[fields[3]]


def _fields(packet: Array) -> tuple[Any, ...]:
    """The values of `HEADER`."""
    return HEADER.unpack_from(packet.data)


def _pulses(numbers: tuple[int, ...]) -> tuple[Pulse, ...]:
    found, at = [], 0
    while at + 3 <= len(numbers) and at + 3 + 2 * numbers[at + 2] <= len(numbers):
        middle, end = at + 3 + numbers[at + 2], at + 3 + 2 * numbers[at + 2]
        found.append(Pulse(numbers[at], numbers[at + 1], numbers[at + 3 : middle], numbers[middle:end]))
        at = end
    if at != len(numbers):
        raise Refused("malformed hello")
    return tuple(found)


def _head(
    kind: tuple[int, int, bool, bool, bool, bool],
    receivers: Sequence[int],
    token: bytes,
    layout: bytes,
    fields: tuple[float, ...],
) -> bytearray:
    """`kind`: the six fields of the header from the kind on."""
    head = bytearray(_body_offset(len(receivers)))
    HEADER.pack_into(head, 0, MAGIC, VERSION, *kind, len(receivers), token, layout, *fields, 0)
    head[HEADER.size : HEADER.size + 4 * len(receivers)] = np.asarray(receivers, np.uint32).tobytes()
    return head


def _assembled(head: bytearray, body: Sequence[Tensor]) -> Array:
    """Concatenate header and body, and write the checksum."""
    sizes = [part.numel() * part.element_size() for part in body]
    packet = np.empty(len(head) + sum(sizes), np.uint8)
    packet[: len(head)] = head
    at = len(head)
    for part, size in zip(body, sizes, strict=True):
        packet[at : at + size] = part.view(torch.uint8).numpy().reshape(-1)
        at += size
    struct.pack_into("<Q", packet.data, HEADER.size - 8, _checksum(packet))
    return packet


def _checksum(packet: Array) -> int:
    """64-bit XXH3, ten times as fast as CRC-32."""
    end = HEADER.size - 8
    checksum = xxh3_64(packet[:end].data)
    checksum.update(packet[end + 8 :].data)
    return checksum.intdigest()


def _body_offset(receivers: int) -> int:
    return -(-(HEADER.size + 4 * receivers) // 64) * 64


def _packed(message: Message) -> list[Tensor]:
    """Return the packed parameters in host memory."""
    if message.ready is not None:
        message.ready.synchronize()
    return [part.cpu() for part in message.packed or ()]


def _on_host(message: Message) -> Tensor:
    """Return the parameters [P] in host memory; from a GPU through pinned memory, on a separate stream."""
    vector = message.parameters
    if not vector.is_cuda:
        return vector
    stream = torch.cuda.Stream(vector.device)  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        if message.ready is not None:
            stream.wait_event(message.ready)
        pinned = torch.empty(vector.shape, pin_memory=True)
        pinned.copy_(vector, non_blocking=True)
        vector.record_stream(stream)
    stream.synchronize()
    return pinned
