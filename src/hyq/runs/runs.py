"""Every kind of run, started and resumed the same way."""

import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from hyq.core.errors import HyqError
from hyq.core.files import new_directory, write_bytes, write_json
from hyq.runs import deep, lock, rnd, trainings
from hyq.runs.checkpoint import about_run
from hyq.runs.deep import DeepRun
from hyq.runs.records import RunDirectory, circumstances
from hyq.runs.rnd import RNDRun
from hyq.runs.specs import LockRun

Run = LockRun | DeepRun | RNDRun
Progress = lock.Progress | trainings.Progress


def start(spec: Run, out: Path) -> Iterator[Progress]:
    """Run `spec` into the new directory `out`."""
    if isinstance(spec, LockRun):
        return lock.start(spec, out)
    return deep.start(spec, out) if isinstance(spec, DeepRun) else rnd.start(spec, out)


def resume(out: Path) -> Iterator[Progress]:
    """Go on with an interrupted run, exactly where its last checkpoint left it."""
    experiment = RunDirectory.open(out).manifest.get("experiment")
    resumes: dict[str | None, Callable[[Path], Iterator[Progress]]] = {
        "lock": lock.resume,
        "deep": deep.resume,
        "rnd": rnd.resume,
    }
    if experiment not in resumes:
        raise HyqError(f"{out} is not a run that can be resumed: it is {experiment!r}")
    return resumes[experiment](out)


def lengthen(out: Path, online_steps: int, into: Path) -> None:
    """Copy a run that has kept its checkpoint to `into`, to be resumed with more steps to take.

    The run itself stays as it is: a record is never rewritten.
    """
    earlier = RunDirectory.open(out)
    manifest = earlier.manifest
    if manifest["experiment"] not in ("deep", "rnd"):
        raise HyqError(f"{out} cannot be made longer: only 'hyq run deep' and 'hyq run rnd' can")
    made = deep.deep_run if manifest["experiment"] == "deep" else rnd.rnd_run
    before: DeepRun | RNDRun = made(manifest["spec"])
    trainings.check_settings(out, manifest, before)
    after = replace(before, online_steps=online_steps, stop_when_solved=False)
    settings = trainings.resolved(after)
    done = earlier.rows[-1] if earlier.rows else {"online_steps": 0, "updates": 0}
    acts = settings["online_steps"] > 0
    asked, taken = ("online_steps", "online_steps") if acts else ("pretraining", "updates")
    if settings[asked] <= done[taken]:
        raise HyqError(f"{out} has {done[taken]:,} {asked} already: ask for more")
    with earlier.only_writer():
        if not earlier.checkpoint.exists():
            raise HyqError(
                f"{out} has no checkpoint to go on from: it was started without "
                "--keep-checkpoint, or killed before there was one"
            )
        with new_directory(into) as draft:
            for part in ("checkpoint", "best", "tensorboard"):
                if (out / part).exists():
                    shutil.copytree(out / part, draft / part)
            # What was recorded after the checkpoint is made again, perhaps at other steps.
            whole = about_run(earlier.checkpoint).get("reports", math.inf)
            kept = [json.dumps(row) for row in earlier.rows if row["iteration"] <= whole]
            write_bytes(draft / "records.jsonl", "".join(f"{row}\n" for row in kept).encode())
            spec = {**manifest["spec"], "online_steps": online_steps, "stop_when_solved": False}
            continues = {"run": str(out), "commit": manifest["commit"]}
            told = {"spec": spec, "settings": settings, "continues": continues}
            write_json(draft / "manifest.json", {**manifest, **circumstances(), **told})
