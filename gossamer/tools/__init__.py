"""Tools: benchmarks, simulated networks, descriptions of architectures."""
