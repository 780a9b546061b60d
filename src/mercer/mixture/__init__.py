"""Mixtures of local experts with Gaussian gates, fitted by one EM loop (Thesis09, chapters 2 and 3)."""
