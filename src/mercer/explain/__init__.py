"""What a fitted model makes of its inputs: exact Shapley values and partial effects of kernel expansions."""
