"""Launchers bring a `Program` to life; they know nothing of learning and import nothing of ours but `program`.

`threads.threads` runs it in this process; `simulation.Simulation` one worker at a time, in an order a seed decides;
`ray.Ray` every host as a process, on this machine or on many. They are called with a program and, where somebody
watches, an `Observer`.
"""
