"""What a device says: values, counters and times of kernels, and which settings are fastest."""
