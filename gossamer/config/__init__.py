"""Configuration of a run: its options, their defaults, and how a program is built from them."""
