"""Differential privacy: accounting (what releases cost) and mechanisms (how answers are released)."""
