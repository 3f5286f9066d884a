"""What a kernel costs: transfers H, memory M, work, bounds, and the machines that pay."""
