"""Documentation that is executed: every Python block of a page runs, in order, in one namespace."""

import re
from pathlib import Path

import pytest

from hyq.algorithms import ALGORITHMS, configure
from hyq.core.actions import ActionKind

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "docs/quickstart.md",
    "docs/your_data.md",
    "docs/robot_arm.md",
    "docs/add_an_algorithm.md",
)


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the pages may leave their files
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert blocks
    namespace: dict[str, object] = {"__name__": page}
    for block in blocks:
        exec(compile(block, page, "exec"), namespace)


def pages() -> list[Path]:
    found = [p.relative_to(ROOT) for p in ROOT.rglob("*.md")]
    return [p for p in found if not any(part.startswith(".") for part in p.parts)]


@pytest.mark.parametrize("page", pages(), ids=str)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if not target.startswith(("http", "mailto")):
            assert (ROOT / page).parent.joinpath(target).exists(), f"{page} -> {target}"


@pytest.mark.parametrize(
    ("page", "actions"), [("hyq_dqn.md", "discrete"), ("hyq_sac.md", "continuous")]
)
def test_the_table_of_settings_has_every_default_of_the_code(
    page: str, actions: ActionKind
) -> None:
    text = (ROOT / "docs/algorithms" / page).read_text()
    table = dict(re.findall(r"^\| `(\w+)` \| `(.+?)` \|", text, flags=re.MULTILINE))
    known = configure("hyq", actions=actions).encoded()
    assert {n: v for n, v in table.items() if n not in ALGORITHMS[actions]} == {
        name: str(value) for name, value in known.items()
    }


def test_the_table_of_the_relatives_has_every_difference_of_the_code() -> None:
    text = (ROOT / "docs/algorithms/hyq_sac.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| `(.+?)` \|", text, flags=re.MULTILINE)
    own = configure("hyq", actions="continuous").encoded()
    for algorithm in ALGORITHMS["continuous"]:
        known = configure(algorithm, actions="continuous").encoded()
        differences = {n: str(v) for n, v in known.items() if n not in own or own[n] != v}
        assert {n: v for a, n, v in rows if a == algorithm} == differences, algorithm


def test_the_table_of_the_baselines_has_defaults_of_the_code() -> None:
    text = (ROOT / "docs/algorithms/deep_baselines.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| `(.+?)` \|", text, flags=re.MULTILINE)
    assert {algorithm for algorithm, _, _ in rows} == {"dqfd", "cql", "iql"}
    for algorithm, name, default in rows:
        assert str(configure(algorithm).encoded()[name]) == default, f"{algorithm}: {name}"
