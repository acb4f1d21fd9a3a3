"""Differential privacy: accounting (how much was released) and mechanisms (how it is released)."""
