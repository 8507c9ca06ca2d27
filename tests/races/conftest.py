"""Fixtures of the races."""

from tests.support_invariants import lawful

__all__ = ["lawful"]
