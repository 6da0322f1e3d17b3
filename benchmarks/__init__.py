"""Benchmarks. Each is a command that writes its result as data to `results/current/`; see README.md in this folder."""
