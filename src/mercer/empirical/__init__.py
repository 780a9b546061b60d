"""Several empirical kernel maps trained together by regularised Ho-Kashyap steps (MEKL13)."""
