"""Trains every combination of compositions, environments and seeds."""
