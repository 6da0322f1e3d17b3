"""Data proxies: gossip messages between hosts."""
