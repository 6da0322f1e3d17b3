"""This machine and this process: cores, devices, streams, errors, options."""
