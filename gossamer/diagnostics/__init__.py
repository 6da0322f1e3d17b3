"""Diagnostics of gossip: consensus distance and its bound, policy divergence, and staleness of messages."""
