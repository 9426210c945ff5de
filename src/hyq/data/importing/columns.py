"""Which column is what: found by its name, or named by the user."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any

import pyarrow as pa

from hyq.core.errors import HyqError
from hyq.data.importing.table import UNUSABLE

_SEEN = "observations?|obs|states?|s"
NAMES = {
    "next_observation": rf"(?:next|new)[._/]?(?:{_SEEN})|(?:{_SEEN})_?next",
    "observation": _SEEN,
    "action": "actions?|act|a",
    "reward": r"(?:next\.)?(?:rewards?|rew|r)",
    "terminated": r"(?:next\.)?(?:(?:is_)?terminated|terminations?|(?:is_)?terminals?)",
    "done": r"(?:next\.)?(?:(?:is_)?dones?|d)",
    "truncated": r"(?:next\.)?(?:(?:is_)?truncated|truncations?|time_?outs?|"
    r"time_?limit(?:\.truncated)?)",
    "episode": "(?:episode|ep|trajectory|traj|rollout)s?(?:_?(?:id|ids|index|idx|no|num|number))?",
    "time": "t|(?:time_?)?steps?(?:_?(?:id|index|idx))?|frame_?(?:index|id)",
    "clock": "time|time_?stamps?|date_?time|ts",
    "probability": r"(?:behaviou?r|action|act|log)?_?(?:policy_?)?(?:log_?)?"
    r"(?:prob(?:ability)?|probs|logp|propensity)",
}
"""What columns are called, whatever the case; observations and actions have parts besides."""


@dataclass(frozen=True)
class Columns:
    """The columns that make up transitions."""

    observation: Mapping[str, tuple[str, ...]]
    """By key of a dictionary; one array has the key ""."""
    action: tuple[str, ...]
    reward: str
    next_observation: Mapping[str, tuple[str, ...]]
    """Empty where rows do not say where they led."""
    terminated: str | None
    truncated: str | None
    episode: str | None
    time: str | None
    done_is_over: bool
    """Whether `terminated` says that the episode was over for any reason, as old `done` does."""
    unused: tuple[str, ...] = ()

    def data(self) -> list[str]:
        """Return the columns of what a transition is made of."""
        seen = [*self.observation.values(), *self.next_observation.values()]
        return list(
            dict.fromkeys([n for names in seen for n in names] + [*self.action, self.reward])
        )

    def control(self) -> list[str]:
        """Return the columns that say which rows belong together."""
        found = (self.episode, self.time, self.terminated, self.truncated)
        return list(dict.fromkeys(name for name in found if name is not None))

    def encoded(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        found = {n: value for n, value in asdict(self).items() if value and n != "done_is_over"}
        plain: dict[str, Any] = json.loads(json.dumps(found))
        return plain

    def described(self) -> dict[str, str]:
        """Return what each column is taken for, in words."""
        rows: dict[str, str | None] = {
            f"{what} {key}".strip(): _listed(names)
            for what in ("observation", "next_observation")
            for key, names in getattr(self, what).items()
        }
        besides = " (or truncated, where it is that too)" if self.done_is_over else ""
        rows |= {
            "action": _listed(self.action),
            "reward": self.reward,
            f"terminated{besides}": self.terminated,
            "truncated": self.truncated,
            "episode": self.episode,
            "time": self.time,
            "not used": _listed(self.unused),
        }
        return {what: name for what, name in rows.items() if name}


def find_columns(schema: pa.Schema, given: Mapping[str, Any]) -> Columns:
    """Find out what each column is; one error lists all that is missing or could be several.

    Args:
        schema: The columns, those in structs by their path.
        given: Columns that the user named, by what they are: names, or patterns such as `s_*`.
    """
    names = list(schema.names)
    complaints: list[str] = []
    named = {what: _given(what, value, names) for what, value in given.items() if value is not None}
    taken = {name for found in named.values() for name in found}
    free = [name for name in names if name not in taken]

    def arrays(what: str) -> dict[str, tuple[str, ...]]:
        if what in named:
            return _by_key(what, named[what]) if what != "action" else {"": tuple(named[what])}
        return _family(what, free, complaints)

    def single(what: str, *kinds: str) -> str | None:
        """Return the one column of the first kind that there is."""
        if what in named:
            if len(named[what]) > 1:
                complaints.append(f"{what} is one column, not {', '.join(named[what])}")
            return named[what][0] if named[what] else None
        for kind in kinds or (what,):
            found = [n for n in free if re.fullmatch(NAMES[kind], n.strip().lower())]
            if len(found) > 1:
                complaints.append(f"{what} could be {_either(found)}")
            if found:
                return found[0]
        return None

    observation, action = arrays("observation"), arrays("action")
    following = arrays("next_observation")
    reward, episode, time = single("reward"), single("episode"), single("time", "time", "clock")
    truncated, terminated = single("truncated"), single("terminated")
    done = None if "terminated" in named else single("done")
    done_is_over = terminated is None and done is not None
    if terminated is None:
        terminated = done
    elif truncated is None:  # where it was over without having terminated it was truncated
        truncated = done
    for what, found in {"observation": observation, "action": action, "reward": reward}.items():
        if not found and not any(text.startswith(f"{what} ") for text in complaints):
            complaints.append(f"{what} is missing")
    if following and {key: len(part) for key, part in following.items()} != {
        key: len(part) for key, part in observation.items()
    }:
        complaints.append(
            f"next_observation has {_parts(following)} where observation has {_parts(observation)}"
        )
    if complaints:
        raise HyqError(
            f"cannot tell what each column is: {'; '.join(complaints)}. The columns are "
            f"{', '.join(names[:60])}: name what is missing, as in observation='x_*' or reward='r'"
        )
    assert reward is not None
    ends = terminated, truncated, episode, time
    columns = Columns(observation, action[""], reward, following, *ends, done_is_over)
    used = columns.data() + columns.control()
    for name in used:
        holds = (schema.field(name).metadata or {}).get(UNUSABLE)
        if holds:
            raise HyqError(f"column {name!r} {holds.decode()}")
    twice = [name for name in used if used.count(name) > 1]
    if twice:
        raise HyqError(f"column {twice[0]!r} cannot be two things: name others")
    return replace(columns, unused=tuple(name for name in names if name not in used))


def _family(what: str, names: Sequence[str], complaints: list[str]) -> dict[str, tuple[str, ...]]:
    """Find `obs`, or `obs_0, obs_1, ...`, or `state_x, state_y, ...`, or `obs.camera, ...`."""
    part = r"(?:[._/\[].+|\d+)?"
    others = {n: p for n, p in NAMES.items() if n not in (what, "observation", "action")}
    if what == "observation":
        others["next_observation"] = f"(?:{NAMES['next_observation']}){part}"
    families: dict[str, dict[str, str]] = {}
    for name in names:
        plain = name.strip().lower()
        found = re.fullmatch(f"(?P<stem>{NAMES[what]}){part}", plain)
        if found and not any(re.fullmatch(pattern, plain) for pattern in others.values()):
            families.setdefault(found["stem"], {})[name] = name.strip()[found.end("stem") :]
    if len(families) > 1:
        complaints.append(f"{what} could be {_either([next(iter(f)) for f in families.values()])}")
    if not families:
        return {}
    family = next(iter(families.values()))
    whole = [name for name, rest in family.items() if not rest]
    numbered = [name for name, rest in family.items() if re.fullmatch(r"[._/\[]?\d+\]?", rest)]
    if whole and numbered:
        complaints.append(f"{what} could be {whole[0]!r} or {', '.join(numbered[:3])}")
    if whole:
        return {"": (whole[0],)}
    if numbered:
        return {"": _in_order(what, numbered, complaints)}
    keyed = [name for name, rest in family.items() if rest[0] in "./"]
    if what == "action" or len(keyed) < len(family):
        return {"": tuple(family)}
    return _keyed(what, {name: family[name][1:] for name in keyed}, complaints)


def _keyed(
    what: str, rests: Mapping[str, str], complaints: list[str]
) -> dict[str, tuple[str, ...]]:
    """Group columns by key: `goal_0` and `goal_1` belong to `goal`."""
    parts: dict[str, list[str]] = {}
    for name, rest in rests.items():
        key, digits = re.fullmatch(r"(.*?)[._/\[]?(\d*)\]?", rest).groups()  # type: ignore[union-attr]
        parts.setdefault(key if key and digits else rest, []).append(name)
    return {
        key: _in_order(f"{what} {key!r}", part, complaints) if len(part) > 1 else tuple(part)
        for key, part in parts.items()
    }


def _in_order(what: str, names: Sequence[str], complaints: list[str]) -> tuple[str, ...]:
    """Sort numbered columns; the numbers must have no gaps."""
    numbers = {name: int(re.findall(r"\d+", name)[-1]) for name in names}
    ordered = sorted(names, key=numbers.__getitem__)
    found = sorted(numbers.values())
    lost = set(range(found[0], found[0] + len(found))) - set(found)
    if found[0] > 1 or lost or len(set(found)) < len(found):
        missing = min(lost) if lost else 0
        complaints.append(f"{what} has no number {missing} between {ordered[0]} and {ordered[-1]}")
    return tuple(ordered)


def _given(what: str, value: str | Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the columns that the user named for something, in order."""
    found: dict[str, None] = {}
    wanted = [value] if isinstance(value, str) else value
    parts = ([one] if one in names else map(str.strip, one.split(",")) for one in wanted)
    for pattern in filter(None, chain.from_iterable(parts)):
        matching = [pattern] if pattern in names else [n for n in names if fnmatchcase(n, pattern)]
        if not matching:
            raise HyqError(f"no column {pattern!r} for {what}: there are {', '.join(names[:60])}")
        found.update(dict.fromkeys(matching))
    return list(found)


def _by_key(what: str, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Make a dictionary of columns whose names have one beginning up to a dot; else one array."""
    dotted = {name: name.partition(".")[2] for name in names}
    if len(names) < 2 or not all(dotted.values()) or len({n.partition(".")[0] for n in names}) > 1:
        return {"": tuple(names)}
    return _keyed(what, dotted, [])


def _listed(names: Sequence[str]) -> str:
    if len(names) > 12:
        names = [*names[:3], "...", names[-1], f"({len(names)} columns)"]
    return ", ".join(names)


def _either(names: Sequence[str]) -> str:
    return " or ".join(repr(name) for name in names)


def _parts(columns: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(
        f"{key} ({len(part)})" if key else f"{len(part)}" for key, part in columns.items()
    )
