"""Settings as data: decoded to the type of their field, encoded as JSON holds them, or raising."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from hyq.core.errors import HyqError
from hyq.core.schedules import PiecewiseLinear, schedule
from hyq.core.settings import (
    check_choices,
    check_idle,
    check_interval,
    check_range,
    decode,
    decode_value,
    encode,
    encode_value,
    json_object,
)


@dataclass(frozen=True)
class Base:
    """A config."""

    rate: PiecewiseLinear = schedule(0.5)
    """How fast,
    against steps."""
    count: int = 3
    """How many."""
    share: float = 0.5
    plain: bool = False
    """Whether it is plain."""


@dataclass(frozen=True)
class Counted:
    count: int


@dataclass(frozen=True)
class Config(Base):
    """A config with more."""

    loss: Literal["huber", "squared"] = "huber"
    """Which one."""
    count: int = 4
    """How many of these."""
    hidden: tuple[int, ...] | None = None
    """Units."""
    pair: tuple[float, float] = (0.0, 1.0)
    """Two."""
    bounds: tuple[float, float] | Literal["auto"] | None = "auto"
    """Two, a word, or nothing."""
    name: str = "x"
    """Its name."""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"rate": 2}, Config(rate=schedule(2.0))),
        ({"rate": "0:1, 10:0"}, Config(rate=PiecewiseLinear(((0, 1), (10, 0))))),
        ({"rate": schedule(0.1)}, Config(rate=schedule(0.1))),
        ({"count": 1e6}, Config(count=1_000_000)),
        ({"share": 1}, Config(share=1.0)),
        ({"plain": True}, Config(plain=True)),
        ({"loss": "squared"}, Config(loss="squared")),
        ({"hidden": [8, 9.0]}, Config(hidden=(8, 9))),
        ({"hidden": None}, Config()),
        ({"hidden": ()}, Config(hidden=())),
        ({"pair": [1, 2]}, Config(pair=(1.0, 2.0))),
        ({"bounds": [1, 2]}, Config(bounds=(1.0, 2.0))),
        ({"bounds": "auto"}, Config()),
        ({"bounds": None}, Config(bounds=None)),
        ({"name": "y"}, Config(name="y")),
    ],
)
def test_settings_decode_and_come_back_from_json(given: dict[str, Any], expected: Config) -> None:
    found = decode(Config, given)
    assert found == expected
    for name, value in vars(expected).items():
        assert type(getattr(found, name)) is type(value)
    assert decode(Config, json.loads(json.dumps(encode(found)))) == found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rate": None}, "rate must be a number or a schedule, got None"),
        ({"rate": [1]}, "rate must be a number or a schedule"),
        ({"rate": "fast"}, "cannot read 'fast' as a schedule"),
        ({"count": 1.5}, "count must be a whole number, got 1.5"),
        ({"count": "3"}, "count must be a whole number, got '3'"),
        ({"count": True}, "count must be a whole number, got True"),
        ({"count": math.inf}, "count must be a whole number"),
        ({"share": math.nan}, "share must be a number"),
        ({"share": "a"}, "share must be a number"),
        ({"plain": 1}, "plain must be of type bool, got 1"),
        ({"loss": "cubic"}, "loss must be one of huber, squared, got 'cubic'"),
        ({"hidden": 8}, "hidden must be a sequence, got 8"),
        ({"hidden": "88"}, "hidden must be a sequence"),
        ({"hidden": [1, "2"]}, "hidden must be a whole number, got '2'"),
        ({"pair": [1]}, r"pair must have 2 entries, got \[1\]"),
        ({"bounds": 3}, "bounds must be a sequence, got 3"),
        ({"bounds": "all"}, "bounds must be one of auto, got 'all'"),
        ({"name": 3}, "name must be of type str"),
        ({"nom": 3, "Name": 4}, "no setting is called Name, nom"),
    ],
)
def test_what_does_not_fit_raises_by_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(HyqError, match=message):
        decode(Config, given)


def test_a_setting_without_a_default_is_named_where_it_is_missing() -> None:
    @dataclass(frozen=True)
    class Named:
        name: str
        other: int = 1

    with pytest.raises(HyqError, match="name is missing"):
        decode(Named, {"other": 2})


def test_anything_may_be_a_setting_without_a_type() -> None:
    marker = object()
    assert decode_value("x", Any, marker) is marker
    assert decode_value("x", dict, {"a": 1}) == {"a": 1}


@dataclass(frozen=True)
class Outer:
    inner: Counted
    named: Mapping[str, Any]


def test_objects_are_decoded_part_by_part() -> None:
    found = decode(Outer, {"inner": {"count": 3.0}, "named": {"a": "b"}})
    assert found == Outer(Counted(3), {"a": "b"})
    for wrong in ({"inner": [3], "named": {}}, {"inner": {"count": 3}, "named": 5}):
        with pytest.raises(HyqError, match="must be an object of named values, got"):
            decode(Outer, wrong)
    assert json_object('{"a": [1]}') == {"a": [1]}
    for text in ("[1]", "{"):
        with pytest.raises(HyqError, match="given as a JSON object"):
            json_object(text)


def test_bounds_have_the_smaller_one_first() -> None:
    for fine in (None, (0.0, 1.0), (-2.0, -1.0)):
        check_interval("x", fine)
    for wrong in ((1.0, 1.0), (1.0, 0.0)):
        with pytest.raises(HyqError, match="x must have its smaller bound first"):
            check_interval("x", wrong)


def test_options_without_effect_are_named() -> None:
    check_idle("this", one=None, other=False)
    with pytest.raises(HyqError, match=r"^this does not use --a-b, --c: leave it out$"):
        check_idle("this", a_b=0.5, other=None, c=True)


@pytest.mark.parametrize(
    ("knots", "text"),
    [
        (((0, 0.5), (10, 0.25)), "0:0.5, 10:0.25"),
        (((0.0, 1e-4), (15e6, 6.25e-5)), "0:0.0001, 1.5e+07:6.25e-05"),
        (((0, 1 / 3), (1234567, 0.1)), "0:0.3333333333333333, 1234567.0:0.1"),
    ],
)
def test_schedules_are_encoded_exactly(knots: Any, text: str) -> None:
    whole = PiecewiseLinear(knots)
    assert encode_value(whole) == text
    assert schedule(text) == whole
    assert encode_value(schedule(text)) == text
    assert encode_value(schedule(0.1)) == 0.1


NEVER: list[Callable[[], None]] = [
    lambda: check_range("x", 0, 1),
    lambda: check_range("x", 1.001, 0, 1),
    lambda: check_range("x", math.nan, 0, 1),
    lambda: check_range("x", math.inf, 0),
    lambda: check_range("x", schedule("0:0.5, 1:1.5"), 0, 1),
    lambda: check_range("x", schedule("0:-0.5, 1:0.5"), 0),
]


def test_ranges_are_checked_at_their_ends() -> None:
    for value in (0, 1, 0.5, schedule("0:0, 9:1")):
        check_range("x", value, 0, 1)
    check_range("x", 10**9, 1)
    for wrong in NEVER:
        with pytest.raises(HyqError, match="x must be"):
            wrong()
    with pytest.raises(HyqError, match=r"^x must be at least 1, got 0$"):
        check_range("x", 0, 1)
    with pytest.raises(HyqError, match=r"^x must be within \[0, 1\], got 0.5 to 1.5$"):
        check_range("x", schedule("0:0.5, 1:1.5"), 0, 1)


def test_words_of_a_config_are_checked() -> None:
    @dataclass
    class Worded:
        kind: Literal["a", "b"] = "a"
        size: Any = None

    check_choices(Worded())
    with pytest.raises(HyqError, match="kind must be one of a, b, got 'c'"):
        check_choices(Worded("c"))  # type: ignore[arg-type]
