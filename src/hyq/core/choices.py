"""Settings that are one of a few words, or whole numbers."""

import math
import numbers
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hyq.core.errors import HyqError


def check_choices(settings: Any) -> None:
    """Raise for a word that the `Literal` annotation of its field does not list.

    Python itself lets any word pass, and code that asks for one of two takes it for the other.
    """
    for name, kind in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        if get_origin(kind) is Literal and value not in get_args(kind):
            raise HyqError(f"{name} must be one of {', '.join(get_args(kind))}, got {value!r}")


def make_whole(settings: Any) -> None:
    """Turn what is given for a field of kind `int` into one: 1e6 is a number of steps too.

    What is no whole number is refused here, not where an array of so many rows is made.
    """
    for name, kind in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        if kind is not int or type(value) is int:
            continue
        number = float(value) if isinstance(value, numbers.Real) else math.nan
        if not number.is_integer():
            raise HyqError(f"{name} must be a whole number, got {value!r}")
        object.__setattr__(settings, name, int(number))  # settings are frozen for everybody else
