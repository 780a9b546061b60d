"""The version of the package, said once."""

__version__ = "0.2.0"
