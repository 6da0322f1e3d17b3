"""Takes a policy along: `load` gives it back without its environment, `export` writes it to a folder of its own."""
