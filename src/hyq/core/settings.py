"""Settings as data: one decoder for what the shell, a file or Python gives, and shared checks."""

import json
import math
import numbers
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from hyq.core.errors import HyqError
from hyq.core.schedules import PiecewiseLinear, schedule

Config = TypeVar("Config")


def check_range(
    name: str, value: float | PiecewiseLinear, low: float, high: float = math.inf
) -> None:
    """Raise unless a number, or a schedule at all times, lies within [low, high]."""
    least, most = value.range if isinstance(value, PiecewiseLinear) else (value, value)
    if most == math.inf:
        raise HyqError(f"{name} must be finite, got {most:g}")
    if not low <= least <= most <= high:
        wanted = f"at least {low:g}" if high == math.inf else f"within [{low:g}, {high:g}]"
        found = f"{least:g}" if least == most else f"{least:g} to {most:g}"
        raise HyqError(f"{name} must be {wanted}, got {found}")


def check_interval(name: str, bounds: tuple[float, float] | str | None) -> None:
    """Raise unless bounds, where numbers are given, have the smaller one first."""
    if isinstance(bounds, tuple) and not bounds[0] < bounds[1]:
        raise HyqError(f"{name} must have its smaller bound first, got {bounds}")


def check_choices(config: Any) -> None:
    """Raise for a word that the `Literal` annotation of its field does not list, None besides."""
    for name, kind in get_type_hints(type(config)).items():
        if any(get_origin(part) is Literal for part in (kind, *get_args(kind))):
            decode_value(name, kind, getattr(config, name))


def check_positive(config: Any, *names: str) -> None:
    """Raise unless all these fields of a config are above zero."""
    for name in names:
        if not getattr(config, name) > 0:
            raise HyqError(f"{name} must be positive, got {getattr(config, name)}")


def check_idle(what: str, **given: Any) -> None:
    """Raise for options that have no effect here, where None or False is not to give them."""
    idle = [name.replace("_", "-") for name, value in given.items() if value not in (None, False)]
    if idle:
        raise HyqError(f"{what} does not use --{', --'.join(idle)}: leave it out")


def decode(config: type[Config], settings: Mapping[str, Any]) -> Config:
    """Make a config of settings by name; each is converted to the type of its field, or raises."""
    kinds = get_type_hints(config)
    unknown = sorted(str(name) for name in settings if name not in kinds)
    if unknown:
        raise HyqError(f"no setting is called {', '.join(unknown)}")
    for part in fields(config):  # type: ignore[arg-type]
        if part.default is part.default_factory is MISSING and part.name not in settings:
            raise HyqError(f"{part.name} is missing")
    return config(**{name: decode_value(name, kinds[name], v) for name, v in settings.items()})


def decode_value(name: str, kind: Any, value: Any) -> Any:
    """Convert a value to a type: 1e6 is a whole number too, and a schedule may be text."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if value is None else decode_value(name, _one_of(arguments, value), value)
    if origin is Literal and value not in arguments:
        raise HyqError(f"{name} must be one of {', '.join(map(str, arguments))}, got {value!r}")
    if origin is Literal or kind is Any:
        return value
    if kind is PiecewiseLinear:
        return _decode_schedule(name, value)
    if origin is tuple:
        return _decode_tuple(name, arguments, value)
    if is_dataclass(kind) or origin is Mapping:
        if not isinstance(value, Mapping):
            raise HyqError(f"{name} must be an object of named values, got {value!r}")
        return dict(value) if origin is Mapping else decode(kind, value)
    if kind in (int, float):
        value = _decode_number(name, kind, value)
    if not isinstance(value, kind):
        raise HyqError(f"{name} must be of type {kind.__name__}, got {value!r}")
    return value


def _one_of(kinds: tuple[Any, ...], value: Any) -> Any:
    """Choose the type that a value is meant for: None aside there is one, or a word beside it."""
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    if len(kinds) > 1:
        kinds = tuple(k for k in kinds if (get_origin(k) is Literal) == isinstance(value, str))
    [kind] = kinds
    return kind


def json_object(text: str) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise HyqError(f"parameters are given as a JSON object, got {text!r}")
    return value


def encode_value(value: Any) -> Any:
    """Return a setting as JSON holds it, such that `decode_value` undoes it."""
    if isinstance(value, PiecewiseLinear):
        if len(value.knots) == 1:
            return value.knots[0][1]
        return ", ".join(f"{_brief(time)}:{_brief(level)}" for time, level in value.knots)
    return list(value) if isinstance(value, tuple) else value


def encode(config: Any) -> dict[str, Any]:
    """Return all settings of a config as JSON holds them."""
    return {field.name: encode_value(getattr(config, field.name)) for field in fields(config)}


def _decode_tuple(name: str, arguments: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple | list):
        raise HyqError(f"{name} must be a sequence, got {value!r}")
    if arguments[-1] is Ellipsis:
        arguments = arguments[:1] * len(value)
    if len(arguments) != len(value):
        raise HyqError(f"{name} must have {len(arguments)} entries, got {value!r}")
    return tuple(
        decode_value(name, kind, part) for kind, part in zip(arguments, value, strict=True)
    )


def _brief(number: float) -> str:
    """Write a number in few digits where they say it exactly."""
    brief = f"{number:g}"
    return brief if float(brief) == number else repr(float(number))


def _decode_schedule(name: str, value: Any) -> PiecewiseLinear:
    try:
        return schedule(value)
    except (TypeError, ValueError):
        raise HyqError(f"{name} must be a number or a schedule, got {value!r}") from None


def _decode_number(name: str, kind: Any, value: Any) -> Any:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    number = float(value) if is_number else math.nan
    if math.isnan(number) or (kind is int and not number.is_integer()):
        wanted = "a whole number" if kind is int else "a number"
        raise HyqError(f"{name} must be {wanted}, got {value!r}")
    return kind(number)
