"""Simulates architectures at scale: their real services in virtual time, over a modelled network.

An architecture is a `Simulated`: its options, its program with workers that compute nothing, the figures that it prints
and the panels of its plot. `run.SIMULATED` lists them."""

from gossamer.tools.simulate.run import SIMULATED, simulate, simulated

__all__ = ["SIMULATED", "simulate", "simulated"]
