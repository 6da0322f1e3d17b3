"""Tools around training: benchmarks, simulated networks, descriptions."""
