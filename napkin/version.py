"""The version of napkin."""

__version__ = "0.1.0"
