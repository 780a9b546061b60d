"""The version of the package, said once."""

__version__ = "0.3.0"
