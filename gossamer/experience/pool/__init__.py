"""Rollouts that any agent fills and any trainer takes, in batches of varying size."""
