"""What the worker loops are made of: actors, learners, and members that are both."""
