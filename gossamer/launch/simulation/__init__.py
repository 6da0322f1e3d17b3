"""Run a program in virtual time, one worker at a time, in an order that follows from a seed."""

from gossamer.launch.simulation.faults import Crashed, Faults
from gossamer.launch.simulation.launcher import Simulation
from gossamer.launch.simulation.network import Network
from gossamer.launch.simulation.scheduler import Deadlock

__all__ = ["Crashed", "Deadlock", "Faults", "Network", "Simulation"]
