"""Compares runs: statistics over seeds, learning curves, figures, tables, and one page with all of it."""
