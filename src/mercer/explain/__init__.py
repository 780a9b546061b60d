"""Explanations of fitted models: exact Shapley values and partial effects of kernel expansions."""
