"""The evidence of Gaussian processes, exact and sparse, and how to climb it: below tuning and every family."""
