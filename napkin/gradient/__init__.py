"""Gradients: diagrams transposed term by term."""
