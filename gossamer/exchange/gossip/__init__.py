"""Gossip: members average parameters with their neighbours."""
