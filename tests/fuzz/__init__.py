"""Random problems × random settings for every public name: a finite answer or a sentence, nothing else.

``python -m tests.fuzz --cases 10000 --jobs 2 --seed 0`` runs many cases and ``python -m tests.fuzz --replay NAME SEED``
one of them; `test_fuzz` runs a few in every test run. A case is told by a public name and a seed, and by nothing else.
"""
