"""What is done with rules: derivations by hand, their trails, and other forms of a term."""
