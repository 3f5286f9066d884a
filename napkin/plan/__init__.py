"""What will run: a diagram cut into kernels, tiles for a machine, and the plan that holds both."""
