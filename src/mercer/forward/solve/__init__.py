"""Solvers of one penalised problem: exactly on all rows, by conjugate gradients, or by polishing given weights."""
