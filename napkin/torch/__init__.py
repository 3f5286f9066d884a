"""Plans on torch tensors: the kernels launched on a GPU."""
