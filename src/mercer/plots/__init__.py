"""Pictures of fitted models, one file per family; matplotlib is imported by the functions that draw."""
