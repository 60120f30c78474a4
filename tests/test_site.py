"""The site is built without a warning, and holds what its pages promise."""

import re
import subprocess
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from io import BytesIO
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
import pytest
from tests.analysis.browser import CHROMIUM, DRIVER, browser

from revbis.objectives import OBJECTIVES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MISSING = [name for name in ("sphinx", "myst_parser", "furo") if find_spec(name) is None]
needs_sphinx = pytest.mark.skipif(
    bool(MISSING), reason='the site needs Sphinx; run: pip install -c constraints.txt ".[docs]"'
)


def load(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(out: Path) -> Path:
    """The pages, built as `make docs` builds them, elsewhere."""
    options = ["-W", "--keep-going", "-q", "-E", "-c", "docs", "-d", str(out / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, "-b", "html", ".", str(out / "html")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return out / "html"


@needs_sphinx
@pytest.mark.slow
def test_the_site(tmp_path: Path) -> None:
    """One test, so that no two processes build it."""
    site = build(tmp_path)
    every_page_is_there(site)
    results_begin_with_verdicts(site)
    links_lead_to_files(site)
    what_is_public_is_described(site)
    if CHROMIUM is not None and DRIVER is not None:
        pages_fit_a_phone(site, tmp_path / "profile")


def every_page_is_there(site: Path) -> None:
    pages = {str(page.relative_to(site).with_suffix("")) for page in site.rglob("*.html")}
    results = (ROOT / "results").glob("**/README.md")
    wanted = [*DOCS.glob("*.md"), *DOCS.glob("[a-z]*/*.md"), *results, ROOT / "CHANGELOG.md"]
    assert {str(page.relative_to(ROOT).with_suffix("")) for page in wanted} <= pages
    for page in site.rglob("*.html"):  # nothing is asked of the network
        loaded = re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="([^"]+)"', page.read_text())
        assert [address for address in loaded if "//" in address] == []


def results_begin_with_verdicts(site: Path) -> None:
    text = (site / "docs" / "results.html").read_text()
    question, verdict = (
        "How much of its metric does a method learn?",
        "learns its order and its scale",
    )
    places = [text.index(each) for each in ("<h1>Results", f"<h2>{question}", verdict)]
    assert places == sorted(places) and places[-1] < text.index("<h2>Records")
    assert text.count("The evidence<") == text.count("<h2>") - 1 >= 5


def pages_fit_a_phone(site: Path, profile: Path) -> None:
    """Pictures are scaled and tables scroll in their own box: the page does not move sideways."""
    with browser(profile) as chromium:
        for name in ("index", "results", "methods/revised", "methods/index"):
            chromium.open(site / "docs" / f"{name}.html", width=390, height=844)
            assert chromium.run("return document.documentElement.scrollWidth") == 390, name
            sticking_out = chromium.run(
                "return [...document.querySelectorAll('article img, article table')].filter((e) =>"
                "{ const b = e.getBoundingClientRect(); return b.width < 9 || b.right > 390; })"
                ".map((e) => e.outerHTML.slice(0, 80))"
            )
            assert sticking_out == [], name


def links_lead_to_files(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        for address in re.findall(r'<a [^>]*href="(?!\w+:)([^"#]+)', text):
            assert (page.parent / address).exists(), f"{page.relative_to(site)}: {address}"
    picture = re.search(
        r'<img [^>]*src="([^"]+exactness\.png)"',
        (site / "results/exactness/README.html").read_text(),
    )
    assert picture is not None and (site / "results/exactness" / picture[1]).exists()


def what_is_public_is_described(site: Path) -> None:
    from revbis import agents, envs, objectives, replay, tabular

    data = {"METRICS", "DESIGNS", "OBJECTIVES", "QUALITIES", "SUITES", "Quality", "examples"}
    for module in (tabular, objectives, agents, envs, replay):
        name = module.__name__.rpartition(".")[2]
        text = (site / "docs" / "reference" / f"{name}.html").read_text()
        described = set(re.findall(rf'id="{re.escape(module.__name__)}\.(\w+)"', text))
        assert set(module.__all__) - data <= described
    commands = (site / "docs" / "reference" / "command-line.html").read_text()
    for flag in ("--objective-weight", "--yardstick-every", "--retry-failed", "--eps"):
        assert flag in commands


@needs_sphinx
def test_docstrings_and_links_are_rewritten() -> None:
    extension = load(DOCS / "_ext" / "revbis_site.py")
    plain = extension.plain_docstring
    assert plain(r"At most \(|x|\), or |y|.") == r"At most :math:`|x|`, or \|y\|."
    assert plain("`a|b`s of *one* kind, **options") == r"`a|b`\ s of *one* kind, \*\*options"
    assert plain("An example.\n\nx = 1\ny = 2") == "An example.\n\n::\n\n    x = 1\n    y = 2"
    page = DOCS / "learned-metrics.md"
    text = (
        "[a](../results/exactness) [b](../examples) [c](training.md#x) "
        "![d](../results/exactness/exactness.png)"
    )
    linked = extension.with_page_links(text, page, ROOT)
    assert "[a](../results/exactness/README.md) [b](examples.md) [c](training.md#x) ![d]" in linked


def test_the_pages_of_methods_have_the_numbers_of_the_records() -> None:
    drawn = load(DOCS / "write_numbers.py")
    named = set()
    for page in drawn.PAGES:
        assert (DOCS / "methods" / f"{page}.md").read_text() == drawn.written(page)
        named |= set(drawn.methods(page))
    found = (ROOT / "results" / "exactness" / "exactness.csv").read_text().splitlines()[1:]
    assert named == set(OBJECTIVES) >= {line.split(",")[1] for line in found}
    # Of the table in results/exactness: φ .07 to .44, ψ .43 to .88; offline .34 and .16.
    row = next(line for line in drawn.numbers("revised").split("\n") if "`simsr-rev`" in line)
    assert row.startswith("| `simsr-rev` | .07 to .44 | .43 to .88 | .34 | .16 | +3 [−12, +17] %")


def test_the_picture_of_the_first_page_shows_what_was_measured() -> None:
    """The means of six scenarios that the tables of results/exactness have."""
    drawing = load(DOCS / "draw_overview.py")
    with mpl.rc_context(drawing.STYLE):
        drawing.draw().savefig(file := BytesIO(), format="svg", metadata={"Date": None})
    pattern = r"<text[^>]*>([^<]*)</text>"
    shown = re.findall(pattern, (DOCS / drawing.NAME).read_text())
    assert shown == re.findall(pattern, file.getvalue().decode())
    # .22 .26 .44 .31 .27 .07; .39 .32 .52 .66 .38 −.05; .89 .99 .79 .95 .85 .95; and so on
    wanted = ["0.26 without it", "0.90 with it", "0.37 without it", "0.86 with it", "0.91 with it"]
    assert [text for text in shown if text.endswith(" it")] == wanted
    assert f"]({drawing.NAME})" in (DOCS / "index.md").read_text()


def test_the_pictures_of_the_concepts_show_what_is_computed(tmp_path: Path) -> None:
    drawing = load(DOCS / "draw_concepts.py")
    page = (DOCS / "concepts.md").read_text()
    assert set(re.findall(r"\]\(([\w-]+\.svg)\)", page)) == set(drawing.PICTURES)
    for name in drawing.PICTURES:
        drawing.draw(name, tmp_path)
        shown, drawn = (
            re.findall(r"<text[^>]*>([^<]*)</text>", (folder / name).read_text())
            for folder in (DOCS, tmp_path)
        )
        assert shown == drawn and len(shown) > 5
    assert drawing.residuals()[2] < 1e-6
    excess, largest = drawing.reach()
    assert excess < 0.16 and largest == pytest.approx(2)
