"""A corpus of awkward but honest files, and what is expected of each.

`python tests/data/awkward_files.py DIR` writes them all, to look at.
"""

import csv
import gzip
import io
import json
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from hyq.data.dataset import Dataset, Episode

Row = dict[str, Any]
EPISODES, TRUNCATED = 12, (3, 7)
"""Episodes of a walk in a plane, and those that are cut off by a time limit."""
COLUMNS = ["episode_id", "t", "obs_0", "obs_1", "action", "reward", "terminated", "truncated"]
NEXT = ["next_obs_0", "next_obs_1"]


def episodes() -> list[Episode]:
    rng = np.random.default_rng(3)
    found = []
    for number in range(EPISODES):
        steps = 8 + number
        walk = rng.normal(0, 0.05, (steps + 1, 2)).cumsum(axis=0) + rng.normal(0, 0.01, 2)
        found.append(
            Episode(
                (walk + np.linspace(0, 3, steps + 1)[:, None]).astype(np.float32),
                rng.integers(0, 3, steps),
                rng.normal(size=steps).astype(np.float32),
                number not in TRUNCATED,
            )
        )
    return found


def rows() -> list[Row]:
    """Return all transitions in order."""
    found = []
    for number, episode in enumerate(episodes()):
        steps = len(episode.action)
        seen = np.asarray(episode.observation)
        for t in range(steps):
            last = t == steps - 1
            found.append(
                {
                    "episode_id": number,
                    "t": t,
                    "obs_0": float(seen[t, 0]),
                    "obs_1": float(seen[t, 1]),
                    "action": int(episode.action[t]),
                    "reward": float(episode.reward[t]),
                    "terminated": int(last and episode.terminated),
                    "truncated": int(last and not episode.terminated),
                    "next_obs_0": float(seen[t + 1, 0]),
                    "next_obs_1": float(seen[t + 1, 1]),
                }
            )
    return found


def expected(with_next: bool = False) -> Dataset:
    """Return what the rows say; without next observations a cut-off episode's last is unknown."""
    found = []
    for one in episodes():
        seen, steps = np.asarray(one.observation).copy(), len(one.action)
        if not with_next and one.terminated:
            seen[-1] = seen[-2]  # after the end nothing counts
        if not with_next and not one.terminated:
            steps -= 1
        found.append(
            Episode(seen[: steps + 1], one.action[:steps], one.reward[:steps], one.terminated)
        )
    return Dataset.of(found, {})


@dataclass(frozen=True)
class Case:
    write: Callable[[Path], Any]
    """Writes files into a directory; returns what to load, a path or anything else."""
    loaded: str = ""
    """'exact', or 'exact next' with next observations; else what is found, or part of an error."""
    raises: str = ""
    """Pattern of the error."""
    mended: str = ""
    """Pattern of the first finding, after which the data is of a shape."""
    shape: tuple[int, int] = (160, EPISODES)
    """Transitions and episodes."""
    options: Mapping[str, Any] = field(default_factory=dict)


CASES: dict[str, Case] = {}


def case(**about: Any) -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
    def register(write: Callable[[Path], Any]) -> Callable[[Path], Any]:
        CASES[write.__name__] = Case(write, **about)
        return write

    return register


def write_csv(
    path: Path, found: Iterable[Row], columns: Sequence[str] = COLUMNS, **how: Any
) -> Path:
    text = io.StringIO()
    writer = csv.writer(text, **how)
    writer.writerow(columns)
    writer.writerows([row[name] for name in columns] for row in found)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def table(found: Sequence[Row], columns: Sequence[str] = COLUMNS) -> pa.Table:
    """Return rows as a table of Arrow, with observations in single precision."""
    arrays = {}
    for name in columns:
        single = "obs_" in name or name == "reward"
        arrays[name] = pa.array([row[name] for row in found], pa.float32() if single else None)
    return pa.table(arrays)


def vectors(found: Sequence[Row]) -> dict[str, Any]:
    """Return rows as D4RL names and shapes them."""
    observation = np.array([[row["obs_0"], row["obs_1"]] for row in found], np.float32)
    return {
        "observations": observation,
        "actions": np.array([row["action"] for row in found]),
        "rewards": np.array([row["reward"] for row in found], np.float32),
        "terminals": np.array([row["terminated"] for row in found], np.bool_),
        "timeouts": np.array([row["truncated"] for row in found], np.bool_),
    }


def shuffled(found: Sequence[Row]) -> list[Row]:
    return random.Random(0).sample(found, len(found))


def renamed(found: Sequence[Row], **names: str) -> list[Row]:
    return [{names.get(key, key): value for key, value in row.items()} for row in found]


def changed(where: Callable[[Row], bool], **values: Any) -> list[Row]:
    return [row | values if where(row) else row for row in rows()]


def at(episode: int, t: int) -> Callable[[Row], bool]:
    return lambda row: (row["episode_id"], row["t"]) == (episode, t)


# Every format and layout, exactly


@case(loaded="exact")
def plain_csv(at_: Path) -> Any:
    return write_csv(at_ / "a.csv", rows())


@case(loaded="exact next")
def csv_with_next(at_: Path) -> Any:
    return write_csv(at_ / "a.csv", rows(), COLUMNS + NEXT)


@case(loaded="exact")
def csv_gz(at_: Path) -> Any:
    return write_csv(at_ / "a.csv.gz", rows())


@case(loaded="exact")
def csv_semicolons_and_bom(at_: Path) -> Any:
    path = write_csv(at_ / "a.csv", rows(), delimiter=";")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    return path


@case(loaded="exact")
def tsv_windows_lines(at_: Path) -> Any:
    return write_csv(at_ / "a.tsv", rows(), delimiter="\t", lineterminator="\r\n")


@case(loaded="exact")
def csv_shuffled(at_: Path) -> Any:
    return write_csv(at_ / "a.csv", shuffled(rows()))


@case(loaded="exact")
def five_csv_in_any_order(at_: Path) -> Any:
    mixed = shuffled(rows())
    paths = [write_csv(at_ / f"part{n}.csv", mixed[n::5]) for n in range(5)]
    return [str(path) for path in reversed(paths)]


@case(loaded="exact next")
def shuffled_with_next(at_: Path) -> Any:
    return write_csv(at_ / "a.csv", shuffled(rows()), [*NEXT, *COLUMNS])


@case(loaded="exact")
def pattern_over_folders(at_: Path) -> Any:
    found = rows()
    write_csv(at_ / "monday" / "a.csv", found[80:])
    write_csv(at_ / "tuesday" / "b.csv", found[:80])
    return str(at_ / "*" / "*.csv")


@case(loaded="exact")
def without_ids_ten_files(at_: Path) -> Any:
    found = rows()
    for number in range(EPISODES):  # part10 comes after part2
        own = [row for row in found if row["episode_id"] == number]
        write_csv(at_ / f"part{number}.csv", own, COLUMNS[2:])
    return at_


@case(loaded="exact")
def time_alone(at_: Path) -> Any:
    return write_csv(at_ / "a.csv", rows(), COLUMNS[1:])


@case(loaded="exact")
def episode_alone(at_: Path) -> Any:
    return write_csv(at_ / "a.csv", rows(), [COLUMNS[0], *COLUMNS[2:]])


@case(loaded="exact")
def environments_in_turns(at_: Path) -> Any:
    # As a vector environment logs them: rows of all its episodes side by side.
    in_turns = sorted(rows(), key=lambda row: row["t"])
    return write_csv(at_ / "a.csv", in_turns, [COLUMNS[0], *COLUMNS[2:]])


@case(loaded="exact")
def timestamps(at_: Path) -> Any:
    found = [r | {"t": f"2024-03-0{1 + r['t'] // 10} 00:00:0{r['t'] % 10}"} for r in rows()]
    for row in found:
        row["t"] = f"2024-03-01 00:00:{int(row['t'][9]) * 10 - 10 + int(row['t'][-1]):02d}"
    return write_csv(
        at_ / "a.csv", renamed(found, t="timestamp"), [COLUMNS[0], "timestamp", *COLUMNS[2:]]
    )


@case(loaded="exact")
def words_for_truth(at_: Path) -> Any:
    words = {0: "no", 1: "Yes"}
    found = [
        r | {"terminated": words[r["terminated"]], "truncated": bool(r["truncated"])}
        for r in rows()
    ]
    return write_csv(at_ / "a.csv", found)


@case(loaded="exact")
def text_ids_with_unicode(at_: Path) -> Any:
    found = [row | {"episode_id": f"día-{row['episode_id']:03d} ☂"} for row in shuffled(rows())]
    return write_csv(at_ / "données.csv", found)


@case(loaded="exact")
def other_names(at_: Path) -> Any:
    names = {"obs_0": "State_x", "obs_1": "State_y", "action": "Act", "reward": "rew"}
    names |= {"terminated": "terminal", "truncated": "time_out", "episode_id": "traj", "t": "step"}
    return write_csv(at_ / "a.csv", renamed(rows(), **names), [names[name] for name in COLUMNS])


@case(loaded="exact", options={"observation": "lat,lon", "time": "tick", "episode": "run"})
def names_given(at_: Path) -> Any:
    names = {"obs_0": "lat", "obs_1": "lon", "t": "tick", "episode_id": "run"}
    return write_csv(
        at_ / "a.csv", renamed(rows(), **names), [names.get(name, name) for name in COLUMNS]
    )


@case(loaded="exact")
def columns_not_needed(at_: Path) -> Any:
    found = [row | {"note": "wet, cold", "action_prob": 0.5, "ratio": ""} for row in rows()]
    return write_csv(at_ / "a.csv", found, ["note", *COLUMNS, "action_prob", "ratio"])


@case(loaded="exact")
def parquet(at_: Path) -> Any:
    pq.write_table(table(rows()), at_ / "a.parquet")
    return at_ / "a.parquet"


@case(loaded="exact")
def parquet_folder(at_: Path) -> Any:
    mixed = shuffled(rows())
    for number in range(3):
        (at_ / "deep").mkdir(exist_ok=True)
        pq.write_table(table(mixed[number::3]), at_ / "deep" / f"{number}.pq", row_group_size=7)
    return at_


@case(loaded="exact")
def parquet_partitioned(at_: Path) -> Any:
    for number in range(EPISODES):
        own = [row for row in rows() if row["episode_id"] == number]
        folder = at_ / f"episode={number}"
        folder.mkdir()
        pq.write_table(table(own, COLUMNS[1:]), folder / "part-0.parquet")
    return at_


@case(loaded="exact")
def parquet_lists_and_categories(at_: Path) -> Any:
    whole = table(shuffled(rows()))
    seen = pa.array(
        [[a.as_py(), b.as_py()] for a, b in zip(whole["obs_0"], whole["obs_1"], strict=True)],
        pa.list_(pa.float32()),
    )
    ids = pa.array([f"{one.as_py():02d}" for one in whole["episode_id"]]).dictionary_encode()
    plain = whole.select(COLUMNS[4:]).append_column("observation", seen)
    pq.write_table(
        plain.append_column("trajectory_id", ids).append_column("t", whole["t"]), at_ / "a.parquet"
    )
    return at_ / "a.parquet"


@case(loaded="exact")
def parquet_of_other_widths(at_: Path) -> Any:
    # The same numbers as unsigned bytes in one file and as 64 bits in the other.
    found, small = rows(), {"t": pa.uint8(), "action": pa.uint16(), "episode_id": pa.int8()}
    first = table(found[:70])
    for name, kind in small.items():
        first = first.set_column(first.schema.get_field_index(name), name, first[name].cast(kind))
    pq.write_table(first, at_ / "a.parquet")
    pq.write_table(table(found[70:]), at_ / "b.parquet")
    return at_


@case(loaded="exact")
def json_lines(at_: Path) -> Any:
    lines = [json.dumps(row) for row in renamed(rows(), next_obs_0="x", next_obs_1="y")]
    (at_ / "a.jsonl").write_text("\n".join(lines))
    return at_ / "a.jsonl"


@case(loaded="exact next")
def json_lines_nested_gz(at_: Path) -> Any:
    with gzip.open(at_ / "a.jsonl.gz", "wt") as file:
        for row in shuffled(rows()):
            nested = {"obs": [row["obs_0"], row["obs_1"]], "next_obs": [row[name] for name in NEXT]}
            file.write(
                json.dumps({name: row[name] for name in COLUMNS if "obs" not in name} | nested)
                + "\n"
            )
    return at_ / "a.jsonl.gz"


@case(loaded="exact")
def npz(at_: Path) -> Any:
    np.savez_compressed(at_ / "a.npz", about=np.array({"a": 1}, object), **vectors(rows()))
    return at_ / "a.npz"


@case(loaded="exact")
def d4rl(at_: Path) -> Any:
    with h5py.File(at_ / "a.hdf5", "w") as file:
        for name, column in vectors(rows()).items():
            file[name] = column
        file["infos/qpos"] = np.zeros((len(rows()), 3))
        file["metadata/algorithm"] = "SAC"
    return at_ / "a.hdf5"


@case(loaded="{position: (2,) float32, speed: () float32}")
def robomimic(at_: Path) -> Any:
    with h5py.File(at_ / "a.hdf5", "w") as file:
        file.create_group("data").attrs["env_args"] = json.dumps({"env_name": "Lift"})
        for number, one in enumerate(episodes()):
            seen, demo = np.asarray(one.observation), file["data"].create_group(f"demo_{number}")
            for part, seen_now in (("obs", seen[:-1]), ("next_obs", seen[1:])):
                demo[f"{part}/position"], demo[f"{part}/speed"] = seen_now, seen_now[:, 0]
            demo["actions"], demo["rewards"] = one.action, one.reward
            demo["dones"] = np.arange(len(one.action)) == len(one.action) - 1
            demo["states"] = np.zeros((len(one.action), 9))
    return at_ / "a.hdf5"


@case(loaded="exact")
def arrow_table(_: Path) -> Any:
    return table(shuffled(rows()))


@case(loaded="exact")
def arrays(_: Path) -> Any:
    return vectors(rows())


@case(loaded="(16, 12, 3) uint8")
def png_images(at_: Path) -> Any:
    found = []
    for row in rows():
        stream = io.BytesIO()
        Image.new("RGB", (12, 16), (row["t"], 0, 9)).save(stream, "PNG")
        found.append(stream.getvalue())
    whole = table(rows(), [name for name in COLUMNS if "obs" not in name])
    pq.write_table(whole.append_column("observation", pa.array(found)), at_ / "a.parquet")
    return at_ / "a.parquet"


@case(loaded="{goal: (2,) float32, seen: () float32}")
def dictionary_by_dots(at_: Path) -> Any:
    names = {"obs_0": "observation.goal_0", "obs_1": "observation.goal_1"}
    found = [
        row | {"observation.seen": row["obs_0"]}
        for row in renamed(rows(), **names)
        for row in [row | {"obs_0": 0.5}]
    ]
    return write_csv(
        at_ / "a.csv", found, [names.get(n, n) for n in COLUMNS] + ["observation.seen"]
    )


@case(loaded="actions () int64")
def named_actions(at_: Path) -> Any:
    words = ["bleiben", "links", "öffnen"]
    return write_csv(at_ / "a.csv", [row | {"action": words[row["action"]]} for row in rows()])


@case(loaded="actions (2,) float32")
def continuous_actions(at_: Path) -> Any:
    found = [row | {"action_0": row["reward"], "action_1": -0.5} for row in rows()]
    names = [name for name in COLUMNS if name != "action"]
    return write_csv(at_ / "a.csv", found, [*names, "action_0", "action_1"])


@case(loaded="exact")
def whole_numbers_at_first(at_: Path) -> Any:
    # Of the first rows a reader would take rewards and observations for whole numbers.
    path = write_csv(at_ / "a.csv", rows(), quoting=csv.QUOTE_ALL)
    return path


# Mended, and said


@case(mended="1 rows have the episode and time of another, .* dropped")
def copied_row(at_: Path) -> Any:
    found = rows()
    return write_csv(at_ / "a.csv", [*found, found[40]])


@case(shape=(158, 13), mended="1 gaps in time, first in .*a.csv row 4: episodes split")
def gap(at_: Path) -> Any:
    return write_csv(at_ / "a.csv", [row for row in rows() if not at(0, 3)(row)])


@case(
    shape=(152, 11), mended="1 gaps in time, .*: their episodes dropped", options={"gaps": "drop"}
)
def gap_dropped(at_: Path) -> Any:
    return write_csv(at_ / "a.csv", [row for row in rows() if not at(0, 3)(row)])


@case(shape=(156, 12), mended="2 episodes stop without an end, first in .*: open_ends='truncate'")
def lost_ends(at_: Path) -> Any:
    lost = [row for row in rows() if not (row["episode_id"] in (4, 9) and row["terminated"])]
    return write_csv(at_ / "a.csv", lost)


@case(shape=(159, 12), mended="1 episodes begin late, first in .*a.csv row 28")
def lost_beginning(at_: Path) -> Any:
    return write_csv(at_ / "a.csv", [row for row in rows() if not at(3, 0)(row)])


@case(mended="2 rows are both terminated and truncated, .*: taken as truncated")
def done_is_over(at_: Path) -> Any:
    found = [row | {"done": row["terminated"] or row["truncated"]} for row in rows()]
    return write_csv(at_ / "a.csv", found, [*COLUMNS[:6], "done", "truncated"])


@case(mended="1 rows are both terminated and truncated, .*: taken as terminated")
def both_ends(at_: Path) -> Any:
    found = changed(lambda row: row["episode_id"] == 2 and row["terminated"] == 1, truncated=1)
    return write_csv(at_ / "a.csv", found)


@case(
    shape=(160, 13),
    mended="1 rows after the end of their episode, first in .*a.csv row 6: episodes split",
)
def end_in_the_middle(at_: Path) -> Any:
    return write_csv(at_ / "a.csv", changed(at(0, 4), terminated=1))


@case(
    shape=(162, 13),
    mended="1 rows do not continue the row before them, first in .*a.csv row 6: episodes split",
)
def jump(at_: Path) -> Any:
    return write_csv(at_ / "a.csv", changed(at(0, 4), next_obs_0=9.5), COLUMNS + NEXT)


@case(
    shape=(154, 15),
    mended="3 rows with a value missing, first in .*: dropped",
    options={"missing": "drop"},
)
def missing_dropped(at_: Path) -> Any:
    found = changed(
        lambda row: row["t"] == 7 and row["episode_id"] < 6 and row["episode_id"] % 2, reward=""
    )
    return write_csv(at_ / "a.csv", found)


@case(
    shape=(158, 13),
    mended="1 rows with a value missing, .*: dropped",
    options={"missing": "drop"},
)
def missing_dropped_beside_copies(at_: Path) -> Any:
    found = changed(at(4, 3), reward="")
    return write_csv(at_ / "a.csv", [*found, rows()[40]])


@case(raises="there are no rows, or none that has all values", options={"missing": "drop"})
def nothing_left(at_: Path) -> Any:
    return write_csv(at_ / "a.csv", [row | {"t": ""} for row in rows()])


# Refused, with what would help


@case(raises=r"cannot tell what each column is: reward could be 'reward' or 'r'; action is missing")
def ambiguous(at_: Path) -> Any:
    found = [row | {"r": 1} for row in rows()]
    return write_csv(at_ / "a.csv", found, [n for n in COLUMNS if n != "action"] + ["r"])


@case(raises=r"a.csv row 31: column 'reward' has no finite value")
def missing_reward(at_: Path) -> Any:
    return write_csv(at_ / "a.csv", changed(at(3, 3), reward=""))


@case(raises=r"b.parquet row 5: column 'obs_1' has no finite value")
def not_a_number(at_: Path) -> Any:
    found = changed(at(5, 4), obs_1=float("nan"))
    whole = [[row for row in found if (row["episode_id"] < 5) == first] for first in (True, False)]
    for name, part in zip("ab", whole, strict=True):
        pq.write_table(table(part), at_ / f"{name}.parquet")
    return at_


@case(raises=r"doubtful whether the rows are in order")
def shuffled_without_ids(at_: Path) -> Any:
    return write_csv(at_ / "a.csv", shuffled(rows()), COLUMNS[2:])


@case(raises=r"[1-4] rows look like the first of an episode")
def glued_without_ids(at_: Path) -> Any:
    lost = [row for row in rows() if not (row["episode_id"] in (4, 6, 8, 9) and row["terminated"])]
    return write_csv(at_ / "a.csv", lost, COLUMNS[2:])


@case(raises=r"1 rows have the episode and time of another and other contents, .*episodes_per_file")
def contradiction(at_: Path) -> Any:
    found = rows()
    return write_csv(at_ / "a.csv", [*found, found[40] | {"reward": 77.0}])


@case(loaded="exact", options={"episodes_per_file": True})
def ids_per_file(at_: Path) -> Any:
    for name, low, high in (("a", 0, 5), ("b", 5, 12)):
        own = [
            r | {"episode_id": r["episode_id"] - low}
            for r in rows()
            if low <= r["episode_id"] < high
        ]
        write_csv(at_ / f"{name}.csv", own)
    return at_


@case(raises=r"12 episodes stop without an end, first in .*open_ends")
def no_ends_at_all(at_: Path) -> Any:
    return write_csv(at_ / "a.csv", rows(), COLUMNS[:6])


@case(raises=r"gaps in time.* too many to be mistakes")
def irregular_times(at_: Path) -> Any:
    return write_csv(at_ / "a.csv", [row | {"t": 2 ** row["t"]} for row in rows()])


@case(raises="column 'observations' holds complex128")
def complex_numbers(_: Path) -> Any:
    return vectors(rows()) | {"observations": vectors(rows())["observations"].astype(complex)}


@case(raises=r"column 'reward' holds duration\[s\]")
def durations(_: Path) -> Any:
    whole = table(rows())
    return whole.set_column(5, "reward", pa.array(range(len(whole)), pa.duration("s")))


@case(raises="column 'rewards' holds object")
def objects(at_: Path) -> Any:
    np.savez(at_ / "a.npz", **vectors(rows()) | {"rewards": np.array([1, "a"] * 81, object)})
    return at_ / "a.npz"


@case(raises="observation has no number 1")
def lost_column(at_: Path) -> Any:
    found = renamed(rows(), obs_1="obs_2")
    return write_csv(at_ / "a.csv", found, [*COLUMNS[:3], "obs_2", *COLUMNS[4:]])


@case(raises=r"a.jsonl row 3: column 'obs' has 1 entries where others have 2")
def ragged_lists(at_: Path) -> Any:
    lines = [row | {"obs": [0.5] * (1 if n == 2 else 2)} for n, row in enumerate(rows())]
    text = [json.dumps({k: v for k, v in row.items() if "obs_" not in k}) for row in lines]
    (at_ / "a.jsonl").write_text("\n".join(text))
    return at_ / "a.jsonl"


@case(raises="has no header")
def without_header(at_: Path) -> Any:
    path = write_csv(at_ / "a.csv", rows())
    path.write_text(path.read_text().partition("\n")[2])
    return path


@case(raises=r"column 'truncated' is in .*a.csv and not in .*b.csv")
def column_of_one_file(at_: Path) -> Any:
    write_csv(at_ / "a.csv", rows()[:50])
    write_csv(at_ / "b.csv", rows()[50:], COLUMNS[:-1])
    return at_


@case(raises=r"a.csv row 9: column 'obs_1' holds '0.7x', which is no number")
def unclear_number(at_: Path) -> Any:
    found: list[Row] = rows()
    found[8]["obs_1"] = "0.7x"
    return write_csv(at_ / "a.csv", found)


@case(raises=r"a.csv row 9: column 'terminated' holds maybe, which is neither yes nor no")
def unclear_flag(at_: Path) -> Any:
    return write_csv(at_ / "a.csv", changed(at(1, 0), terminated="maybe"))


@case(raises=r"cannot read .*a.csv.gz: .*[Tt]runcated")
def cut_short(at_: Path) -> Any:
    path = write_csv(at_ / "a.csv.gz", rows())
    path.write_bytes(path.read_bytes()[:-500])
    return path


@case(raises="no file .*nothing.csv")
def nothing_there(at_: Path) -> Any:
    return [at_ / "nothing.csv"]


@case(raises="cannot tell what .*a.pkl holds")
def pickle_file(at_: Path) -> Any:
    (at_ / "a.pkl").write_bytes(b"\x80\x04N.")
    return at_ / "a.pkl"


if __name__ == "__main__":
    for name, one in CASES.items():
        folder = Path(sys.argv[1]) / name
        folder.mkdir(parents=True)
        one.write(folder)
