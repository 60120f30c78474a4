"""The report page in headless Chromium: it draws, it answers, it asks for nothing, it fits."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.analysis.browser import CHROMIUM, DRIVER, MISSING, Browser, choose, click, series, until
from tests.analysis.fake_study import fake_run, large_study, rewrite

from revbis.analysis.page import Media, write_page
from revbis.analysis.study import read_study

pytestmark = pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=MISSING)
ODD = "<script>alert(1)</script>"
_FAILED = {"frames": 40_000, "name": "non_finite", "text": "critic_loss is not finite"}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks, four methods, two seeds; one run is not finished and one failed."""
    folder = tmp_path_factory.mktemp("study")
    for m, method in enumerate(["drqv2", "simsr", "simsr-rev", "simsr-rev-no-c"]):
        for seed in (1, 2):
            up = 10.0 * m + seed
            rising = [0.0, 100.0 + up, 200.0 + up, 300.0 + up, 400.0 + up]
            fake_run(folder, method=method, seed=seed, returns=rising, rate=100 + 50 * m)
            fake_run(
                folder,
                "metaworld:hammer",
                method,
                seed,
                returns=rising,
                success=[0, 0.2, 0.4, 0.6, 0.8],
                done=0.5 if (m, seed) == (0, 2) else 1.0,
                alarms=[_FAILED] if (m, seed) == (1, 1) else (),
                threads=1 + m,
            )
    return write_page(read_study([folder]), folder / "page")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    large_study(folder / "runs")
    return write_page(read_study([folder / "runs"]), folder / "page")


def ink(chromium: Browser, selector: str, path: Path) -> set[tuple[int, ...]]:
    """The colours of what is drawn in the first element that fits."""
    chromium.run("revbis.drawAll()")  # what is out of view waits to be drawn
    chromium.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
    box = chromium.run(
        "const b = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return [b.left, b.top, b.right, b.bottom];",
        selector,
    )
    chromium.screenshot(path)
    with Image.open(path) as picture:
        colours = picture.convert("RGB").crop(tuple(box)).getcolors(1 << 20)
    assert colours is not None
    return {colour for _, colour in colours}


@pytest.mark.parametrize("width", [1280, 390])
def test_draws_everything_and_fits(
    width: int, page: Path, chromium: Browser, tmp_path: Path
) -> None:
    chromium.open(page, width=width)
    chromium.run("revbis.drawAll()")
    assert not chromium.run("return 'training-critic_loss-1' in revbis.charts")  # folded
    chromium.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    chromium.run("revbis.drawAll()")
    assert chromium.errors() == []
    assert chromium.requests() == [page.resolve().as_uri()]
    assert chromium.run("return document.documentElement.scrollWidth") == width
    sections = chromium.run(
        "return [...document.querySelectorAll('main section')]"
        ".filter((s) => s.offsetHeight > 60).map((s) => s.id)"
    )
    wanted = "problems alarms curves summary statistics c training ablations timing settings"
    assert sections == [*wanted.split(), "commands", "versions"]
    metrics = ["critic_loss", "critic_q1", "objective/effective_rank"]
    kinds = ["c", "curves", *(f"training-{metric}" for metric in metrics)]
    wanted_charts = [f"{kind}-{task}" for kind in kinds for task in (0, 1)]
    assert sorted(chromium.run("return Object.keys(revbis.charts)")) == sorted(
        [*wanted_charts, "profiles"]
    )
    drawn = ink(chromium, "#curves canvas", tmp_path / "page.png")
    for colour in [(0, 0x72, 0xB2), (0xD5, 0x5E, 0), (0, 0x9E, 0x73), (0xCC, 0x79, 0xA7)]:
        assert colour in drawn
    hidden = chromium.run(  # nothing sticks out of its card
        "return [...document.querySelectorAll('.card, figure, .timing, .notice, .tiles div')]"
        ".filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.outerHTML.slice(0, 80))"
    )
    assert hidden == []


def test_curves_are_means_where_all_seeds_are(page: Path, chromium: Browser) -> None:
    chromium.open(page)
    drawn = series(chromium, "curves-0")
    assert drawn[""] == [0, 10_000, 20_000, 30_000, 40_000]
    assert drawn["drqv2"] == [0, 101.5, 201.5, 301.5, 401.5]  # seeds are 1 and 2 higher
    # Of two numbers that are 1 apart the standard error is ½.
    errors = chromium.run(
        "return revbis.groupCurve(revbis.data.groups[0], 'return', 'frames', 0).error"
    )
    assert errors == pytest.approx([0, 0.5, 0.5, 0.5, 0.5])
    assert series(chromium, "curves-1")["drqv2"] == pytest.approx([0, 0.2, 0.4, None, None])
    choose(chromium, "metric", "return")
    assert series(chromium, "curves-1")["drqv2"] == [0, 101.5, 201.5, None, None]  # half done


def test_training_metrics_are_means_and_single_seeds_on_demand(
    chromium: Browser, tmp_path: Path
) -> None:
    """critic_q1 is frames / 1000 in every seed, which log at 20 and at 8 frames of their own."""
    for seed, lines in ((1, 20), (2, 8)):
        fake_run(tmp_path, method="drqv2", seed=seed, lines=lines)
    chromium.open(write_page(read_study([tmp_path]), tmp_path / "page"))
    drawn = series(chromium, "training-critic_q1-0")
    assert drawn.pop("") == [5_000 * i for i in range(1, 9)]
    assert list(drawn) == ["drqv2"]
    assert drawn["drqv2"] == pytest.approx([5.0 * i for i in range(1, 9)])
    assert set(series(chromium, "training-critic_loss-0")["drqv2"]) == {2.0}  # of 1.5 and 2.5
    choose(chromium, "seeds", "each")
    drawn = series(chromium, "training-critic_q1-0")
    assert set(drawn) == {"", "drqv2 · seed 1", "drqv2 · seed 2"}
    assert chromium.errors() == []


def y_axis(chromium: Browser, chart: str) -> list[float]:
    chromium.run("revbis.drawAll()")
    ends: list[float] = chromium.run(
        "const { min, max } = revbis.charts[arguments[0]].scales.y; return [min, max]", chart
    )
    return ends


def test_axes_begin_at_0_and_reach_the_maximal_return_when_curves_do(
    chromium: Browser, tmp_path: Path
) -> None:
    """Half of 1,000 brings it onto the scale; below, it is there on demand."""
    for task, top in (("cartpole_balance", 100.0), ("walker_walk", 600.0)):
        fake_run(tmp_path, f"dmc:{task}", returns=[90.0, 95.0, top])
    fake_run(tmp_path, "gym:Pendulum-v1", returns=[-900.0, -300.0])
    chromium.open(write_page(read_study([tmp_path]), tmp_path / "page"))
    assert y_axis(chromium, "curves-0") == pytest.approx([0, 106])  # 6% above the highest
    assert y_axis(chromium, "curves-1") == pytest.approx([0, 1060])
    assert y_axis(chromium, "curves-2") == pytest.approx([-954, 0])
    assert y_axis(chromium, "training-critic_loss-0") == pytest.approx([0, 1.59])  # always 1.5
    choose(chromium, "scale", "maximum")
    assert y_axis(chromium, "curves-0") == pytest.approx([0, 1060])
    assert y_axis(chromium, "curves-2") == pytest.approx([-954, 0])  # none is known
    assert chromium.errors() == []


def test_no_two_of_25_methods_look_alike(chromium: Browser, tmp_path: Path) -> None:
    for size in range(25):
        fake_run(tmp_path / "runs" / str(size), batch_size=100 + size, returns=[0.0, 1.0 + size])
    chromium.open(write_page(read_study([tmp_path / "runs"]), tmp_path / "page"))
    chromium.run("revbis.drawAll()")
    drawn = chromium.run(
        "const ink = document.createElement('canvas').getContext('2d');"
        "return revbis.charts['curves-0'].series.slice(1).map((curve) => {"
        "  ink.fillStyle = '#010203'; ink.fillStyle = curve.stroke(); return ink.fillStyle; })"
    )
    swatches = chromium.run(
        "return [...document.querySelectorAll('.chip line')].map((l) => getComputedStyle(l).stroke)"
    )
    assert len(drawn) == len(set(drawn)) == len(set(swatches)) == 25 and "#010203" not in drawn
    assert chromium.errors() == []


def test_smoothing(page: Path, chromium: Browser) -> None:
    chromium.open(page)
    choose(chromium, "smooth", "0.5")
    # 0, 101.5 / 2, (201.5 + 50.75) / 2, …
    wanted = [0, 50.75, 126.125, 213.8125, 307.65625]
    assert series(chromium, "curves-0")["drqv2"] == pytest.approx(wanted)
    choose(chromium, "smooth", "0.2")
    assert series(chromium, "curves-0")["drqv2"][1] == pytest.approx(20.3)
    choose(chromium, "smooth", "0")
    assert series(chromium, "curves-0")["drqv2"][1] == 101.5


def test_x_axis_and_metric(page: Path, chromium: Browser) -> None:
    chromium.open(page)
    choose(chromium, "x", "updates")
    assert series(chromium, "curves-0")[""] == [0, 2_500, 5_000, 7_500, 10_000]
    choose(chromium, "x", "hours")
    drawn = series(chromium, "curves-0")
    at = {x: y for x, y in zip(drawn[""], drawn["simsr"], strict=True) if y is not None}
    assert list(at) == pytest.approx([i * 10_000 / 150 / 3600 for i in range(5)], rel=1e-3)
    choose(chromium, "x", "frames")
    choose(chromium, "metric", "success")
    assert series(chromium, "curves-1")["simsr"][-1] == pytest.approx(0.8)
    assert series(chromium, "curves-0")["simsr"][-1] == 411.5  # a task without success keeps return
    assert chromium.errors() == []


def test_methods_and_tasks_can_be_switched_off(page: Path, chromium: Browser) -> None:
    chromium.open(page)
    rows = "return document.querySelectorAll('#summary tbody tr:not([hidden])').length"
    cards = "return document.querySelectorAll('#curves .card:not([hidden])').length"
    assert (chromium.run(rows), chromium.run(cards)) == (8, 2)
    click(chromium, "labels-1")  # simsr
    assert "simsr" not in series(chromium, "curves-0")
    assert {"", "drqv2", "simsr-rev", "simsr-rev-no-c"} == set(series(chromium, "curves-0"))
    assert chromium.run(rows) == 6
    click(chromium, "tasks-1")
    assert (chromium.run(rows), chromium.run(cards)) == (3, 1)
    click(chromium, "labels-none")
    assert "no method is switched on" in chromium.run(
        "return document.querySelector('#curves .empty').textContent"
    )
    click(chromium, "labels-all")
    click(chromium, "tasks-1")
    assert (chromium.run(rows), chromium.run(cards)) == (8, 2)
    assert chromium.errors() == []


def test_switches_work_from_the_keyboard(page: Path, chromium: Browser) -> None:
    chromium.open(page)
    for _ in range(60):
        chromium.press("Tab", 9)
        if chromium.run("return document.activeElement.id") == "labels-0":
            break
    else:
        raise AssertionError("Tab never comes to the first method")
    named = chromium.run("return document.activeElement.labels[0].textContent")
    assert named == "drqv2"
    chromium.press(" ", 32, " ")
    assert "drqv2" not in series(chromium, "curves-0")
    for control in chromium.run(
        "return [...document.querySelectorAll('#controls input, #controls select')]"
        ".map((e) => e.labels.length)"
    ):
        assert control == 1


def test_hover_tells_the_values_and_the_nearest_curve(page: Path, chromium: Browser) -> None:
    chromium.open(page)
    chromium.run("revbis.drawAll()")
    chromium.run("document.querySelector('#curves .plot').scrollIntoView({block: 'center'})")
    x, y = chromium.run(
        "const u = revbis.charts['curves-0'], b = u.over.getBoundingClientRect();"
        "return [b.left + u.valToPos(20000, 'x'), b.top + u.valToPos(231.5, 'y') - 1];"
    )
    chromium.move(x - 30, y)
    chromium.move(x, y)
    tip = "return document.querySelector('#curves .tip').innerText"
    text = until(lambda: chromium.run(tip))
    assert "20k frames" in text and "201.5 ± 0.5" in text and "231.5 ± 0.5" in text
    nearest = chromium.run("return document.querySelector('#curves .tip .near').innerText")
    assert nearest.startswith("simsr-rev-no-c")
    alphas = chromium.run("return revbis.charts['curves-0'].series.slice(1).map((s) => s.alpha)")
    assert alphas == [0.25, 0.25, 0.25, 1]
    chromium.move(1, 1)
    until(lambda: chromium.run("return document.querySelector('#curves .tip').hidden"))


def tips(chromium: Browser, chart: str) -> list[list[float]]:
    """The tooltip's box at many places of a chart: left, top, right, bottom."""
    chromium.run(
        "revbis.drawAll(); revbis.charts[arguments[0]].root.scrollIntoView({block: 'end'})", chart
    )
    boxes: list[list[float]] = chromium.run(
        "const u = revbis.charts[arguments[0]], { width, height } = u.over.getBoundingClientRect();"
        "return [0, .2, .45, .55, .8, 1].flatMap((x) => [0, .5, 1].flatMap((y) => {"
        "  u.setCursor({left: x * width, top: y * height});"
        "  const tip = u.over.querySelector('.tip');"
        "  if (tip.hidden) return [];"
        "  const b = tip.getBoundingClientRect();"
        "  return [[b.left, b.top, b.right, b.bottom]];"
        "}))",
        chart,
    )
    return boxes


def test_tooltips_stay_on_a_phone_s_screen(page: Path, chromium: Browser) -> None:
    chromium.open(page, **PHONE)
    for chart in ("curves-0", "c-0", "training-objective/effective_rank-0"):
        boxes = tips(chromium, chart)
        assert len(boxes) >= 12
        for left, top, right, bottom in boxes:
            assert 0 <= left < right <= 390 and 0 <= top < bottom <= 844
    assert chromium.run("return document.documentElement.scrollWidth") == 390


def test_sections_are_reached_on_a_phone(page: Path, chromium: Browser) -> None:
    chromium.open(page, **PHONE)
    names = chromium.run(
        "return [...document.querySelectorAll('#links a:not([hidden])')].map((a) => a.text)"
    )
    assert names[:4] == ["problems", "alarms", "curves", "summary"] and "training" in names
    places = chromium.run(
        "const links = document.getElementById('links');"
        "return [...links.querySelectorAll('a:not([hidden])')].map((link) => {"
        "  link.click();"
        "  const heading = document.querySelector(`${link.hash} h2`).getBoundingClientRect();"
        "  const bar = links.getBoundingClientRect();"
        "  return [heading.top, bar.top, bar.bottom, link.getBoundingClientRect().height];"
        "})"
    )
    for name, (heading, top, bottom, tall) in zip(names, places, strict=True):
        assert bottom <= heading < 844, name  # below the bar, and seen
        assert tall >= 40, name  # a finger hits it
        assert top >= 0
    assert places[5][1] == 0  # the bar stays
    width, room = chromium.run(
        "const { scrollWidth, clientWidth } = document.getElementById('links');"
        "return [scrollWidth, clientWidth]"
    )
    assert room <= 390 < width  # it scrolls by itself


def test_tables_scroll_in_their_own_box_on_a_phone(page: Path, chromium: Browser) -> None:
    chromium.open(page, **PHONE)
    chromium.run("revbis.drawAll()")
    boxes = chromium.run(
        "return [...document.querySelectorAll('table')].map((table) => {"
        "  const box = table.parentElement, { left, right } = box.getBoundingClientRect();"
        "  return [left, right, getComputedStyle(box).overflowX];"
        "})"
    )
    assert len(boxes) == 4  # summary, two of statistics, differences
    assert all(0 <= left < right <= 390 and kind == "auto" for left, right, kind in boxes)
    assert chromium.run("return document.documentElement.scrollWidth <= innerWidth")
    sizes = chromium.run(  # as they are on the screen
        "return [...document.querySelectorAll('main svg text')].map((t) => "
        "parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a)"
    )
    assert min(sizes) >= 10.5
    outside = chromium.run(
        "return [...document.querySelectorAll('main svg text')].filter((t) => {"
        "  const b = t.getBoundingClientRect(), s = t.ownerSVGElement.getBoundingClientRect();"
        "  return b.left < s.left - 1 || b.right > s.right + 1;"
        "}).map((t) => t.textContent)"
    )
    assert outside == []


def test_seeds_that_did_not_come_through_are_marked(page: Path, chromium: Browser) -> None:
    chromium.open(page)
    assert chromium.run("return document.getElementById('seeds').hidden") is True
    choose(chromium, "seeds", "each")
    chromium.run("revbis.drawAll()")
    marks = chromium.run(
        "return [...document.querySelectorAll('#seeds .mark')]"
        ".map((m) => [m.tagName, m.parentNode.querySelector('title').textContent])"
    )
    assert marks == [
        ["circle", "seed 2, unfinished: 40% at 20k frames"],
        ["path", "seed 1, failed: 80% at 40k frames"],
    ]
    assert chromium.run("return document.querySelectorAll('#seeds polyline').length") == 16
    captions = chromium.run("return document.getElementById('seeds').innerText")
    assert "1 of 2 seeds unfinished" in captions and "1 of 2 seeds failed" in captions


def test_ablations_compare_a_family(page: Path, chromium: Browser) -> None:
    chromium.open(page)
    chromium.run("revbis.drawAll()")
    words = chromium.run(
        "return [...document.querySelectorAll('#ablations .card')[0]"
        ".querySelectorAll('svg text')].map((t) => t.firstChild.data)"
    )
    assert words[:6] == [
        "simsr-rev",
        "422, 2 seeds",
        "simsr-rev-no-c",
        "432, 2 seeds",
        "simsr",
        "412, 2 seeds",
    ]
    lines = chromium.run("return document.querySelectorAll('#ablations svg g line').length")
    assert lines == 0  # two seeds have no interval


def test_ablations_of_enough_seeds_have_intervals(chromium: Browser, tmp_path: Path) -> None:
    for seed in range(4):  # the best of simsr-rev: 0, 100, 200 and 300, mean 150 ± 3.182 · 64.5
        fake_run(tmp_path / "runs", seed=seed, returns=[0.0, 100.0 * seed])
        fake_run(tmp_path / "runs", method="simsr", seed=seed, returns=[0.0, 50.0])
    chromium.open(write_page(read_study([tmp_path / "runs"]), tmp_path / "page"))
    chromium.run("revbis.drawAll()")
    words = chromium.run(
        "return [...document.querySelectorAll('#ablations svg text')].map((t) => t.firstChild.data)"
    )
    assert words[:4] == ["simsr-rev", "150 [-55, 355]", "simsr", "50.0 [50.0, 50.0]"]
    ends = chromium.run(
        "const [line] = document.querySelectorAll('#ablations svg g line');"
        "return ['x1', 'x2'].map((name) => Number(line.getAttribute(name)))"
    )
    dots = chromium.run(
        "return [...document.querySelectorAll('#ablations svg g')[0].querySelectorAll('circle')]"
        ".map((dot) => Number(dot.getAttribute('cx')))"
    )
    low, high = min(dots), max(dots)  # the seeds 0 and 300
    assert ends == pytest.approx(
        [low - 55.4 / 300 * (high - low), high + 55.4 / 300 * (high - low)], abs=0.3
    )


def test_a_watched_page_reloads_itself(page: Path, chromium: Browser, tmp_path: Path) -> None:
    watched = write_page(read_study([page.parent.parent]), tmp_path, refresh=True)
    text = watched.read_text()
    assert ' data-refresh="10"' in text
    watched.write_text(text.replace(' data-refresh="10"', ' data-refresh="1"'))
    chromium.open(watched)
    # Whichever load this falls into, a later one is without it.
    until(lambda: chromium.run("window.before = true; return true"))
    until(lambda: chromium.run("return !window.before && !!window.revbis"), 60)


def test_what_was_chosen_outlives_a_reload(page: Path, chromium: Browser) -> None:
    chromium.open(page)
    choose(chromium, "smooth", "0.2")
    choose(chromium, "x", "hours")
    click(chromium, "labels-1")
    click(chromium, "tasks-0")
    chromium.run("document.querySelector('#timing details').open = false")
    chromium.run(
        "revbis.drawAll(); revbis.charts['curves-1'].setScale('x', {min: 0.02, max: 0.05})"
    )
    chromium.run("scrollTo(0, 500); window.before = true; revbis.reload()")
    until(lambda: chromium.run("return !window.before && !!window.revbis"))
    assert chromium.run(
        "return [revbis.state.smooth, revbis.state.x, [...revbis.state.labels],"
        "[...revbis.state.tasks], document.getElementById('labels-1').checked,"
        "document.getElementById('choose-x').value]"
    ) == ["0.2", "hours", [1], [0], False, "hours"]
    until(lambda: chromium.run("return scrollY") == 500)
    assert chromium.run("return document.querySelector('#timing details').open") is False
    chromium.run("revbis.drawAll()")
    zoomed = "const { min, max } = revbis.charts['curves-1'].scales.x; return [min, max]"
    until(lambda: chromium.run(zoomed) == [0.02, 0.05])
    assert chromium.errors() == []


def test_odd_names_are_only_names(chromium: Browser, tmp_path: Path) -> None:
    for seed in (1, 2):
        fake_run(tmp_path, task=ODD, seed=seed)
        fake_run(tmp_path, task='dmc:"quoted" & </style>', seed=seed)
    chromium.open(write_page(read_study([tmp_path]), tmp_path / "page"))
    chromium.run("revbis.drawAll()")  # an alert would stop this
    assert chromium.errors() == []
    titles = chromium.run("return [...document.querySelectorAll('h3')].map((h) => h.textContent)")
    assert ODD in titles and 'dmc:"quoted" & </style>' in titles
    click(chromium, "tasks-0")
    chromium.run("location.reload()")
    until(lambda: chromium.run("return window.revbis?.state.tasks.size") == 1)


def test_one_run_has_its_episodes(chromium: Browser, tmp_path: Path) -> None:
    folder = fake_run(tmp_path)
    picture = tmp_path / "n.png"
    Image.new("RGB", (40, 30), "red").save(picture)
    media = {folder.resolve(): Media(None, picture)}
    chromium.open(write_page(read_study([tmp_path]), tmp_path / "page", media))
    assert chromium.errors() == []
    size = "const i = document.querySelector('#episodes img'); return [i.naturalWidth, i.complete]"
    assert chromium.run(size) == [40, True]
    assert "training episodes" in chromium.run("return document.getElementById('curves').innerText")
    assert chromium.run("return document.getElementById('seeds').hidden") is True
    grey = ink(chromium, "#curves canvas", tmp_path / "page.png")
    assert any(max(c) - min(c) < 30 and 120 < sum(c) / 3 < 190 for c in grey)  # training episodes


def test_a_run_without_evaluations_is_a_page_too(chromium: Browser, tmp_path: Path) -> None:
    fake_run(tmp_path, returns=[], lines=0)
    fake_run(tmp_path, seed=2, returns=[5.0], lines=1)
    chromium.open(write_page(read_study([tmp_path]), tmp_path / "page"))
    chromium.run("revbis.drawAll()")
    assert chromium.errors() == []
    assert series(chromium, "curves-0")["simsr-rev"] == [5.0]


def test_a_task_without_evaluations_has_no_axes(chromium: Browser, tmp_path: Path) -> None:
    fake_run(tmp_path, "dmc:walker_run", returns=[])
    fake_run(tmp_path, "dmc:cheetah_run")
    chromium.open(write_page(read_study([tmp_path]), tmp_path / "page"))
    chromium.run("revbis.drawAll()")
    choose(chromium, "seeds", "each")
    chromium.run("revbis.drawAll()")
    figures = "return [...document.querySelectorAll('#seeds figure')].map((f) => f.innerText)"
    known, unknown = chromium.run(figures)
    assert "40k" in known and "1e-9" not in unknown
    assert unknown.endswith("no evaluation yet")


def test_scores_are_in_view_on_a_phone_beside_long_names(chromium: Browser, tmp_path: Path) -> None:
    for seed, steps in enumerate((50, 100)):
        fake_run(tmp_path / str(seed), explore_steps=steps, update_every=1 + seed)
    chromium.open(write_page(read_study([tmp_path]), tmp_path / "page"), **PHONE)
    cells = chromium.run(
        "return [...document.querySelectorAll('.results tbody tr')].map((row) => "
        "[row.cells[1].innerText, row.cells[2].getBoundingClientRect().right])"
    )
    assert len(cells) == 2
    assert all("explore_steps=" in name and right <= 390 for name, right in cells)


def seen(chromium: Browser, section: str, value: str) -> Any:
    """A value of the page while a section is in view; asked again, it scrolls there again.

    What is drawn in the meantime may move the section, and only a new frame tells what is in view.
    """
    chromium.run(f"document.getElementById({section!r}).scrollIntoView()")
    chromium.tell("Page.captureScreenshot", format="jpeg", quality=1)
    return chromium.run(f"return {value}")


@pytest.mark.slow
def test_150_runs_draw_what_is_seen(large: Path, chromium: Browser) -> None:
    chromium.open(large)
    charts = until(lambda: seen(chromium, "curves", "Object.keys(revbis.charts).length"))
    assert charts < 7  # the others wait until they come into view
    assert not chromium.run("return 'c-0' in revbis.charts")
    until(lambda: seen(chromium, "c", "'c-0' in revbis.charts"))
    chromium.run("revbis.drawAll()")
    click(chromium, "labels-0")
    # Of six tasks the curves and c, the three metrics of the one that is unfolded, and profiles.
    assert chromium.run("return Object.keys(revbis.charts).length") == 2 * 6 + 3 + 1
    assert chromium.errors() == []
    assert chromium.requests() == [large.resolve().as_uri()]


def test_charts_of_what_agents_report(chromium: Browser, tmp_path: Path) -> None:
    new = fake_run(tmp_path, method="drqv2")
    more = {"kl": 2.0, "constructor": 4.0, "__proto__": 8.0}
    rewrite(new / "train.jsonl", lambda line: line | more)
    rewrite(new / "eval.jsonl", lambda line: line | {"status": {"c": 0.25, "toString": 3}})
    fake_run(tmp_path, method="simsr")
    chromium.open(write_page(read_study([tmp_path]), tmp_path / "page"))
    assert series(chromium, "c-0")["drqv2"] == [0.25] * 5
    folded = "return [...document.querySelectorAll('#training summary')].map((s) => s.textContent)"
    assert chromium.run(folded) == ["dmc:cartpole_balance", "4 more metrics"]
    assert not chromium.run("return 'training-kl-0' in revbis.charts")
    chromium.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    for name, value in [("kl", 2.0), ("constructor", 4.0), ("__proto__", 8.0), ("toString", 3.0)]:
        drawn = series(chromium, f"training-{name}-0")
        assert set(drawn["drqv2"]) == {value} and "simsr" not in drawn
    assert set(series(chromium, "training-objective/effective_rank-0")) == {"", "simsr"}
    assert chromium.errors() == []


def test_statistics_follow_the_methods_that_are_shown(chromium: Browser, tmp_path: Path) -> None:
    for m, method in enumerate(("drqv2", "mico", "simsr")):
        for seed in (1, 2):
            fake_run(tmp_path, method=method, seed=seed, returns=[0.0, 100.0 * (m + 1) + seed])
    chromium.open(write_page(read_study([tmp_path]), tmp_path / "page"))
    rows = (
        "return [...document.querySelectorAll('#statistics tbody tr:not([hidden])')]"
        ".map((row) => row.cells[0].textContent)"
    )
    pairs = ["simsr vs mico", "simsr vs drqv2", "mico vs drqv2"]
    assert chromium.run(rows) == ["drqv2", "mico", "simsr", *pairs]
    profiles = series(chromium, "profiles")
    assert set(profiles) == {"", "drqv2", "mico", "simsr"}
    assert profiles["drqv2"][:10] == [1.0] * 10 and profiles["drqv2"][11:] == [0.0] * 90
    click(chromium, "labels-1")  # mico
    assert chromium.run(rows) == ["drqv2", "simsr", "simsr vs drqv2"]
    assert set(series(chromium, "profiles")) == {"", "drqv2", "simsr"}
    assert chromium.errors() == []
