"""Settings that are one of a few words."""

from typing import Any, Literal, get_args, get_origin, get_type_hints

from hyq.core.errors import HyqError


def check_choices(settings: Any) -> None:
    """Refuse a word that the `Literal` annotation of its field does not list.

    Python itself lets any word pass, and code that asks for one of two takes it for the other.
    """
    for name, kind in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        if get_origin(kind) is Literal and value not in get_args(kind):
            raise HyqError(f"{name} must be one of {', '.join(get_args(kind))}, got {value!r}")
