"""The evidence of Gaussian processes, exact and sparse, and its maximisation."""
