"""Plays whole games with trained policies, for figures and videos."""
