"""Networks, and optimizers of their parameters."""
