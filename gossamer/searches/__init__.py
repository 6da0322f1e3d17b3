"""Searches for the values of options with which a composition learns best."""
