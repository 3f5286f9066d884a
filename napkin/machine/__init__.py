"""Machines: levels of memory, pipes, compute, constants of the time model, with sources."""
