"""Whole games with what was learned, for figures and for videos."""
