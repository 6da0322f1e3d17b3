"""Data proxies: how messages of gossip cross hosts."""
