"""Bundles and a parameter server, in virtual time: the real shards and links, with bundles that compute nothing."""
