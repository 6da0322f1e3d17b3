"""One message with the Nature network's parameters between two hosts, in bytes and milliseconds."""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch

from benchmarks.provenance import Results
from gossamer.exchange.gossip.formats import FORMATS, Format
from gossamer.exchange.gossip.messages import Message, Parcel
from gossamer.exchange.proxy.wire import decode, encode
from gossamer.launch.ray.launcher import Ray
from gossamer.nn.networks import ActorCritic, Network
from gossamer.nn.torsos import nature
from gossamer.program import Program
from gossamer.runtime import Context, Silent
from gossamer.spaces import Discrete, Spec
from gossamer.system.machine import KEEP_FREED_MEMORY

TOKEN, LAYOUT = bytes(16), bytes(8)


class Sink:
    """Service: accepts packets and drops them."""

    def deliver(self, packet: Any) -> None: ...


class Kept(Silent):
    """Observer: keeps all reports."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def report(self, worker: str, record: Any) -> None:
        self.records.append(record)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=100, help="messages of each format (default: 100)")
    parser.add_argument(
        "--address",
        default=None,
        metavar="IP:PORT",
        help="head of a Ray cluster, to measure between two of its machines (default: two processes of this machine)",
    )


def measure(given: argparse.Namespace, results: Results) -> None:
    """Measure each format in turn; milliseconds are medians."""
    model = ActorCritic(Spec((4, 84, 84), np.dtype(np.uint8), Discrete(6)), Network(nature))
    elements = sum(p.numel() for p in model.parameters())
    milliseconds: dict[str, Any] = {}
    for form in FORMATS:
        Ray(given.address, env=KEEP_FREED_MEMORY)(_sender_and_receiver(form, elements, given.count), seen := Kept())
        milliseconds[form] = seen.records[-1]
        print(form, milliseconds[form], flush=True)
    found = {"network": "nature", "parameters": elements, "messages": given.count, "milliseconds": milliseconds}
    results.write(found)


def _sender_and_receiver(form: Format, elements: int, count: int) -> Program:
    p = Program("message")
    with p.host("receiver"):
        sink = p.service(Sink)()
    with p.host("sender"):
        p.worker(ship)(sink, form=form, elements=elements, count=count)
    return p


def ship(ctx: Context, sink: Sink, *, form: Format, elements: int, count: int) -> None:
    """Worker: packs and sends a message `count` times. It also unpacks each one, to measure the time."""
    torch.set_num_threads(1)
    vector = torch.randn(elements)
    parcel = Parcel(Message(0, 1, 0, 1.0, time.time(), vector), (1,))
    packet = encode(parcel, TOKEN, LAYOUT, form)
    rows = []
    for _ in range(count):
        start = time.perf_counter()
        packet = encode(parcel, TOKEN, LAYOUT, form)
        packed = time.perf_counter()
        sink.deliver(packet)
        sent = time.perf_counter()
        decode(packet, TOKEN, LAYOUT)
        rows.append([packed - start, sent - packed, time.perf_counter() - sent])
    milliseconds = np.median(np.array(rows) * 1e3, axis=0).round(3).tolist()
    ctx.report({"bytes": int(packet.nbytes), **dict(zip(("pack", "send", "unpack"), milliseconds, strict=True))})
