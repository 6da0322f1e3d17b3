"""Experience through a queue between actors and a learner."""
