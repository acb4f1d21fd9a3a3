"""Foundations of every other package: errors, checks, files, randomness, features, records and the guarantee."""
