"""Gossip in virtual time: the real exchange, proxies and couriers, with small models."""
