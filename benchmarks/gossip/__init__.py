"""Cost and scaling of gossip: one module for each benchmark."""
