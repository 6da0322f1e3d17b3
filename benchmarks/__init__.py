"""Benchmarks. Each is a command that writes its result as data under `results/`; see README.md in this directory."""
