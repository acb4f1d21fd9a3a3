"""Foundations that every other package uses: errors, randomness, features, records, the guarantee type."""
