"""Run a program on Ray: each host is a process of this machine or of a cluster."""
