"""What Boost06's numbers need in words."""

NOTES = """
"""
