"""Counts of a kernel, in symbols and exact: transfers H, memory M, operations, visits."""
