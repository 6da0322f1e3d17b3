"""Launchers run a `Program`. They do not depend on learning; outside `launch` they import only `program`.

`threads.threads` runs a program in this process. `simulation.Simulation` runs one worker at a time, in an order that
follows from a seed. `ray.Ray` runs each host as a process, on this machine or on several. A launcher is called with a
program and optionally an `Observer`.
"""
