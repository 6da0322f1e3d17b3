"""Measurements, each a command whose result is kept as data under `results/`. See README.md beside this file."""
