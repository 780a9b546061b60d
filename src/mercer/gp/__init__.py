"""Gaussian processes on few inducing inputs: covariances, evidence and posterior (Thesis09, chapters 4 and 5)."""
