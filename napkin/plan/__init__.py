"""What will run: kernels with their settings for a machine, and the plan that holds them."""
