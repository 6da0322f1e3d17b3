"""Actors and learners apart, in virtual time: the real queue and broadcast, with workers that compute nothing."""
