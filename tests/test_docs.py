"""The code in the documentation runs, block after block, in one namespace a page.

A block that begins with `# name.py` is that file, which later blocks import.
"""

import pkgutil
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("[a-z]*/*.md")), ROOT / "README.md"]


def blocks(page: Path) -> list[tuple[int, str]]:
    text = page.read_text()
    found = re.finditer(r"^```python\n(.*?)^```", text, flags=re.M | re.S)
    return [(text[: match.start(1)].count("\n"), match.group(1)) for match in found]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def with_needs(page: Path) -> object:
    draws = any("make_env" in code or "runs" in code for _, code in blocks(page))
    return pytest.param(page, marks=pytest.mark.env("dmc") if draws else ())


@pytest.mark.parametrize("page", [with_needs(p) for p in PAGES if blocks(p)], ids=name_of)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    modules = dict(sys.modules)
    (tmp_path / "results").symlink_to(ROOT / "results")  # pages are read in a checkout
    namespace: dict[str, object] = {}
    for line, code in blocks(page):
        if file := re.match(r"# (\w+\.py)\n", code):
            (tmp_path / file[1]).write_text(code)
            continue
        exec(compile("\n" * line + code, str(page), "exec"), namespace)
    assert namespace
    for name in sys.modules.keys() - modules.keys():
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent == tmp_path:
            del sys.modules[name]  # another page may have a file of that name


def test_names_of_the_package_exist() -> None:
    """`revbis.objectives.register`, for example: a module, or what is in one."""
    named = {
        name for page in PAGES for name in re.findall(r"`(revbis(?:\.\w+)+)", page.read_text())
    }
    assert len(named) > 10
    for name in sorted(named):
        pkgutil.resolve_name(name)  # raises for what is not there


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_local_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)\s#]+)\)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert missing == []


def test_every_method_has_one_page() -> None:
    from revbis.objectives import OBJECTIVES

    pages = [page for page in PAGES if page.parent.name == "methods" and page.name != "index.md"]
    names = []
    for page in pages:
        tables = [line for line in page.read_text().splitlines() if line[:3] == "| `"]
        names += {name for row in tables for name in re.findall(r"`([\w-]+)`", row.split("|")[1])}
    assert sorted(names) == sorted(OBJECTIVES)


def test_the_reference_of_objectives_begins_with_how_to_make_one() -> None:
    text = (DOCS / "reference" / "objectives.md").read_text()
    first = re.search(r"auto\w+:: (\S+)", text)
    assert first is not None and first[1] == "revbis.objectives.make_objective"


def test_every_agent_has_a_page() -> None:
    from revbis.agents.registry import OWN, agents

    text = (DOCS / "agents.md").read_text()
    for entry in agents():
        if not entry.name.startswith(OWN):
            assert f"]({entry.name}.md)" in text and (DOCS / f"{entry.name}.md").exists()


def test_troubleshooting_names_flags_and_alarms_that_exist() -> None:
    from revbis import cli
    from revbis.runs.config import setting_names

    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    text = (DOCS / "troubleshooting.md").read_text()
    flags = {flag.replace("-", "_") for flag in re.findall(r"--([a-z][a-z-]+)", text)}
    others = {"dry_run", "measure", "baseline", "restart", "scale", "method", "task", "preset"}
    assert len(flags) > 10 and flags <= set(setting_names()) | others
    for alarm in re.findall(r"alarm `(\w+)`", text):
        assert f'"{alarm}"' in source
    for command in re.findall(r"`revbis (\w+)", text):
        assert command in cli._COMMANDS


def test_the_grid_of_methods_is_that_of_the_code() -> None:
    from revbis.objectives import DESIGNS, OBJECTIVES

    text = (DOCS / "learned-metrics.md").read_text()
    grid = re.search(r"^\| name \| distance .*?(?=\n\n)", text, flags=re.M | re.S)
    assert grid is not None
    rows = {}
    for line in grid.group().splitlines()[2:]:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[name.strip("`")] = cells
    assert set(rows) == set(OBJECTIVES)
    for name, design in DESIGNS.items():
        assert rows[name] == [
            {"mico": "MICo", "simsr": "SimSR", "energy": "energy"}[design.distance],
            "pairs" if design.state_action else "states",
            design.follows,
            "yes" if design.tied else "",
            "(1−c, c)" if design.adaptive else "(1, γ)",
        ]


def test_equations_page_names_what_exists() -> None:
    from revbis import objectives, tabular
    from revbis.tabular import operators, theorems

    solvers = {solver.name for metric in tabular.METRICS.values() for solver in metric.solvers}
    text = (DOCS / "equations.md").read_text()
    for name in re.findall(r"`operators\.(\w+)`", text):
        assert hasattr(operators, name)
    for name in re.findall(r"`theorems\.(\w+)`", text):
        assert hasattr(theorems, name)
    for name in re.findall(r"\| `(\w+)(?:\([^`]*\))?` \|", text):
        places = (tabular, objectives)
        assert any(hasattr(place, name) for place in places) or name in solvers
    written = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(re.findall(r"test_\w+\.py", text)) <= written


def test_every_grid_that_ships_is_listed() -> None:
    from revbis.sweep.grid import shipped_grids

    text = (ROOT / "docs" / "sweeps.md").read_text()
    assert [name for name in shipped_grids() if f"`{name}`" not in text] == []
