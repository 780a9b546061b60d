"""Solvers of one penalised least-squares problem: by a factor, exactly on all rows, by polishing given weights."""
