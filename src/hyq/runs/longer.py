"""A run made longer: a copy of it that is resumed with more steps to take."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

from hyq.core.errors import HyqError
from hyq.core.files import new_directory, write_bytes, write_json
from hyq.runs.checkpoint import about_run
from hyq.runs.records import RunDirectory, chained, circumstances
from hyq.runs.runner import check_settings
from hyq.runs.spec import RunSpec


def lengthen(out: Path, steps: int, into: Path) -> None:
    """Copy a run that has kept its checkpoint to `into`, to be resumed with more steps to take.

    Steps are online steps, or updates of an algorithm that never acts. The run itself stays as it
    is: a record is never rewritten.
    """
    earlier = RunDirectory.open(out)
    manifest = earlier.manifest
    if manifest["experiment"] != "train":
        raise HyqError(f"{out} cannot be made longer: only what 'hyq train' started can")
    before = RunSpec.decoded(manifest["spec"])
    check_settings(out, manifest, before)
    counter, _ = before.length
    settings = {**before.settings, counter: steps}
    after = replace(before, settings=settings, stop_when_solved=False)
    done = earlier.rows[-1][counter] if earlier.rows else 0
    if steps <= done:
        raise HyqError(
            f"{out} has {done:,} {counter.replace('_', ' ')} already: give a larger number"
        )
    with earlier.only_writer():
        if not earlier.checkpoint.exists():
            raise HyqError(
                f"{out} has no checkpoint to resume from: it was started without "
                "--keep-checkpoint, or killed before there was one"
            )
        with new_directory(into) as draft:
            for part in ("checkpoint", "best", "tensorboard"):
                if (out / part).exists():
                    shutil.copytree(out / part, draft / part)
            # What was recorded after the checkpoint is made again, perhaps at other steps.
            whole = about_run(earlier.checkpoint).get("reports", math.inf)
            head, kept = "", b""
            for row in earlier.rows:
                if row["iteration"] <= whole:
                    head, line = chained(head, row)
                    kept += f"{line}\n".encode()
            write_bytes(draft / "records.jsonl", kept)
            changed = {
                "spec": after.encoded(),
                "settings": after.configs.encoded(),
                "continues": {"run": str(out), "commit": manifest["commit"]},
            }
            write_json(draft / "manifest.json", {**manifest, **circumstances(), **changed})
