"""From what a kernel does to seconds."""
