"""The loops around a data proxy: couriers that do what is slow, and a watch that tells it the time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import torch

from gossamer.exchange.gossip.formats import Format
from gossamer.exchange.gossip.messages import Hello, Parcel
from gossamer.exchange.proxy.liveness import BEAT
from gossamer.exchange.proxy.proxy import Arrival, Proxy, Remains, Search, Transfer
from gossamer.exchange.proxy.wire import Refused, decode, encode
from gossamer.program import Context, Stopped, Unreachable


def carry(ctx: Context, proxy: Proxy, others: Sequence[Proxy], *, form: Format = "fp32") -> None:
    """A courier: pack, take, unpack, until all members of this host have ended.

    `others`: every host's proxy, by host, the own one among them; `form`: of the numbers on their way."""
    torch.set_num_threads(1)
    with suppress(Stopped):
        while (job := proxy.job()) is not None:
            if isinstance(job, Arrival):
                _unpack(proxy, job)
            elif isinstance(job, Search):
                _search(proxy, others, job)
            elif isinstance(job, Remains):
                proxy.bequeath([encode(item, job.token, job.layout) for item in job.items])
            else:
                _transfer(proxy, others, job, form)


def _transfer(proxy: Proxy, others: Sequence[Proxy], job: Transfer, form: Format) -> None:
    """Pack, and take to another host."""
    packets = [encode(item, job.token, job.layout, form) for item in job.items]
    try:
        others[job.host].deliver(*packets)
    except Unreachable:
        proxy.done(job, arrived=False)
    else:
        proxy.done(job, arrived=True)


def _search(proxy: Proxy, others: Sequence[Proxy], job: Search) -> None:
    """Ask every host that can be reached for the last messages of members that have ended."""
    for other in others:
        with suppress(Unreachable, Refused):
            for packet in other.remains():
                item = decode(packet, job.token, job.layout)
                if isinstance(item, Parcel):
                    proxy.inherit(item)


def _unpack(proxy: Proxy, job: Arrival) -> None:
    """Look at what came, and let the proxy have what is in it."""
    for packet in job.packets:
        try:
            item = decode(packet, job.token, job.layout)
        except Refused:
            proxy.refuse()
            continue
        if isinstance(item, Hello):
            proxy.greeted(item)
        else:
            proxy.file(item)
    proxy.unpacked()


def watch(ctx: Context, proxy: Proxy) -> None:
    """A clock: tell the proxy the time, again and again."""
    while not ctx.stopped and proxy.tick(ctx.now(), ctx.restarts):
        ctx.sleep(BEAT)
