"""Terms: nodes, operators, what they mean, and their values in numpy."""
