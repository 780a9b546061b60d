"""What the verdicts need in words: the readings chosen, and why a group of cells lies outside the spread."""

from __future__ import annotations

READINGS = ""
NOTES: dict[tuple[str, str], str] = {}
