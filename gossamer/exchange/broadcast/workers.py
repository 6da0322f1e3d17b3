"""Worker loops that keep a host's copy of the parameters up to date, and offer it to a restarted learner."""

from __future__ import annotations

from contextlib import suppress

from gossamer.data import Stamp
from gossamer.exchange.broadcast.parameters import PackedParameters, Parameters, Reply
from gossamer.runtime import GONE, RETRY, Context, Stopped, Unreachable

BEAT = 1.0  # seconds between two looks at the learner's host


def fetch(ctx: Context, source: Parameters, copy: Parameters) -> None:
    """Copy the newest parameters from the learner's host, each time after an actor here has taken the last ones or
    needs newer ones, until all actors of this host or the learner have ended: one transfer for all actors of a host. It
    gives up, and the actors end, if the learner's host does not answer for `GONE` seconds.

    A learner whose host has been restarted is offered the copy, once in each of its lives."""
    stamp: Stamp | None = None  # of the copy
    offered = False  # whether the learner's host has the copy, and its learner has not published yet
    failed: float | None = None  # time of the first attempt that failed since the last answer
    with suppress(Stopped):
        while not ctx.stopped and (not ctx.restarts or copy.forget(ctx.ended_before)):
            try:
                reply = source.after(None if offered else stamp)
                if reply is Reply.OFFER:
                    source.offer(copy.copy())
                    offered = True
            except Unreachable:
                failed = ctx.now() if failed is None else failed
                if ctx.now() - failed > GONE:
                    copy.close()
                    return
                offered = False
                ctx.sleep(RETRY)
                continue
            failed = None
            if reply is Reply.END:
                copy.close()
                return
            if isinstance(reply, PackedParameters):
                copy.replace(reply)
                stamp, offered = reply.stamp, False
                if not copy.taken():
                    return


def offer_copy(ctx: Context, source: Parameters, copy: Parameters) -> None:
    """Have `fetch` offer the copy to a restarted learner in time, although the actors here take no parameters because
    they wait for that learner. Ends with `fetch`, and after the learner, although actors that ended before this host
    was restarted did not leave the copy."""
    answered = ctx.now()
    while not ctx.stopped and copy.followed():
        try:
            asked, answered = source.asks(), ctx.now()
        except Unreachable:
            asked = Reply.END if ctx.now() - answered > GONE else None
        if asked is Reply.END:
            copy.close()
        elif asked is Reply.OFFER:
            copy.ask_again()
        ctx.sleep(BEAT)
