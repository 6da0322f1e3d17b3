"""Training runs: start, resume, observe, record, show progress."""
