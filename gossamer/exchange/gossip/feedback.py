"""Error feedback: what a member has rounded off of one message, it adds to the next (Seide et al. 2014; Karimireddy et
al. 2019, arXiv 1901.09847).

A member rounds its parameters x once, to q, for all receivers on all hosts. Rounding takes the mass M (x - q) out of
the exchange, where M is the weight that its receivers get together. The member owes it, r [P], and its next message
has more by it:

    q = round(x + r / M),    r <- r + M (x - q)

In lock-step with doubly stochastic weights of s for each message, the sum over members of x + s r is conserved, and
with push-sum the sum of weight * parameters and r, on any graph with any delays. An element of q is wrong by at most
half a step of its block's scale, and of r by as much for each receiver: the mean does not drift away, as it does
where the errors of messages add up."""

from __future__ import annotations

import torch
from torch import Tensor

from gossamer.exchange.gossip.formats import Format, pack, restore


class Feedback:
    """One member's rounding, and what it owes."""

    def __init__(self, form: Format, owed: Tensor | None, exact: int = 0) -> None:
        """`owed` r [P]; None for messages whose sender keeps the errors in its parameters (`sparse`, changed). `exact`:
        see `formats`."""
        self.form, self.owed, self._exact = form, owed, exact

    @torch.no_grad()
    def rounded(self, values: Tensor, places: Tensor | None, mass: float) -> tuple[Tensor, tuple[Tensor, ...], float]:
        """Round the parameters [K] of a message with these indices [K] in the vector (None: all), for receivers that
        together get the weight `mass`. Returns the rounded parameters q [K], their packed parts, and ||q - x||_2."""
        if self.owed is None or not mass:
            wanted, owed = values, None
        else:
            owed = self.owed if places is None else self.owed[places]
            wanted = torch.add(values, owed, alpha=1 / mass)
        parts = tuple(pack(wanted, self.form, self._exact))
        rounded = restore(parts, self.form, len(values), self._exact)
        error = values - rounded
        if owed is not None and self.owed is not None:
            rest = torch.add(owed, error, alpha=mass)
            if places is None:
                self.owed = rest
            else:
                self.owed[places] = rest
        return rounded, parts, float(error.norm())
