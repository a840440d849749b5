"""Integers as arguments of users, which may be Python's or NumPy's."""

import numbers


def as_integer(value: object) -> int | None:
    """Returns an integer of any type as an `int`, `None` for everything else and for booleans."""
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return int(value) if is_integer else None  # type: ignore[call-overload]
