"""Worker loops of a data proxy: couriers perform slow operations, the watch provides heartbeats."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from gossamer.exchange.gossip.formats import Format
from gossamer.exchange.gossip.messages import Hello, Parcel
from gossamer.exchange.proxy.jobs import Arrival, FetchLast, PackLast, Transfer
from gossamer.exchange.proxy.liveness import BEAT
from gossamer.exchange.proxy.proxy import Proxy
from gossamer.exchange.proxy.wire import Refused, decode, decoded, encode
from gossamer.runtime import Context, Stopped, Unreachable
from gossamer.system.machine import use_threads


def carry(ctx: Context, proxy: Proxy, others: Sequence[Proxy], *, form: Format = "fp32") -> None:
    """Courier: perform the proxy's jobs until all members of this host have ended.

    `others`: the proxies of all hosts, in order, including this one; `form`: number format of parameters in transit."""
    use_threads(1)
    if ctx.restarts:
        proxy.forget(ctx.ended_before)
    with suppress(Stopped):
        while (job := proxy.job()) is not None:
            if isinstance(job, Arrival):
                _unpack(proxy, job)
            elif isinstance(job, FetchLast):
                _fetch_last(proxy, others, job)
            elif isinstance(job, PackLast):
                proxy.packed_last([encode(item, job.token, job.layout) for item in job.items])
            else:
                _transfer(proxy, others, job, form)


def _transfer(proxy: Proxy, others: Sequence[Proxy], job: Transfer, form: Format) -> None:
    """Encode items and send them to another host."""
    packets = [encode(item, job.token, job.layout, form) for item in job.items]
    try:
        arrived = others[job.host].deliver(*packets) is None
    except Unreachable:
        arrived = False
    proxy.done(job, arrived=arrived)


def _fetch_last(proxy: Proxy, others: Sequence[Proxy], job: FetchLast) -> None:
    """Fetch the last messages of members that have ended from every reachable host."""
    for other in others:
        with suppress(Unreachable, Refused):
            for packet in other.last_messages():
                item = decode(packet, job.token, job.layout)
                if isinstance(item, Parcel):
                    proxy.fetched_last(item)


def _unpack(proxy: Proxy, job: Arrival) -> None:
    """Decode received packets and pass their contents to the proxy."""
    for item in decoded(job.packets, job.token, job.layout, proxy.refuse):
        if isinstance(item, Hello):
            proxy.hello(item)
        else:
            proxy.file(item)
    proxy.unpacked()


def watch(ctx: Context, proxy: Proxy) -> None:
    """Clock: call `Proxy.tick` every `BEAT` seconds."""
    while not ctx.stopped and proxy.tick(ctx.now(), ctx.restarts):
        ctx.sleep(BEAT)
