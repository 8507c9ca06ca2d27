"""Fixtures of the law tests."""

from tests.support_invariants import lawful

__all__ = ["lawful"]
