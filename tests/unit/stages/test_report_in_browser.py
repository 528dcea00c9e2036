"""Pages as a reader sees them, in Debian's Chromium: they fit, say no errors, ask no network, and answer clicks."""

import json
import os
import shutil
import subprocess

import analysed
import pytest
from conftest import PROJECT
from playwright.sync_api import expect, sync_playwright
from stage_server import python_module
from stage_words import start_stage

from workflow_src.cli import main
from workflow_src.stages import report

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="pages are looked at in Debian's chromium, which is missing")
# A narrow window and a wide one.
WIDTHS = (390, 1280)
# Milliseconds.
PATIENCE = 120_000
# Elements that begin or end outside of the window. What scrolls in a frame of its own is within that.
OUTSIDE = """() => [...document.querySelectorAll("body *")].filter(element => {
  const box = element.getBoundingClientRect();
  if (!box.width || !box.height || element.closest("svg, .vg-tooltip")) return false;
  for (let frame = element.parentElement; frame !== document.body; frame = frame.parentElement)
    if (["auto", "scroll"].includes(getComputedStyle(frame).overflowX)) return false;
  return box.left < -1 || box.right > innerWidth + 1;
}).map(element => element.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        # Chromium's sandbox does not run for root, as in a container.
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        # Beside busy processes a page takes minutes.
        expect.set_options(timeout=PATIENCE)
        yield opened
        opened.close()


def opened(browser, path, width):
    """The page at a width, with what goes wrong on it: errors, and requests beside that of the page."""
    page, wrong = browser.new_page(viewport={"width": width, "height": 900}), []
    page.set_default_timeout(PATIENCE)
    page.on("console", lambda message: message.type in ("error", "warning") and wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: request.url != path.as_uri() and wrong.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_function("document.querySelectorAll('.still').length == document.querySelectorAll('.drawn').length")
    return page, wrong


def assert_fits(browser, path):
    """At every width, whether folds are closed or open."""
    for width in WIDTHS:
        page, wrong = opened(browser, path, width)
        for _ in range(2):
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(OUTSIDE) == []
            if page.locator("summary").count():
                page.locator("summary:visible").first.click()
            page.evaluate("document.querySelectorAll('details:not([open]) > summary').forEach(fold => fold.click())")
            assert page.locator("details:not([open])").count() == 0
        assert wrong == []
        page.close()


@pytest.fixture
def written(report_inputs, tmp_path):
    """A report with analyses and speed: its page."""
    names = {"teacher": "transformer", "lvm": "lvm", "score": "score"}
    paths = [tmp_path / f"{name}.json" for name in ("marginal", "latent_space", "lengths")]
    for path in paths:
        path.write_text(json.dumps(analysed.raw(path.stem)))
    start_stage(report, [*report_inputs(names, significance=True), "--analyses", *map(str, paths)])
    return tmp_path / "report/index.html"


def test_a_report_fits_answers_clicks_and_prints_pictures(browser, written, tmp_path):
    assert_fits(browser, written)
    page, wrong = opened(browser, written, 1280)
    figure = page.locator("figure", has_text="Quality against speed").first
    points = figure.locator(".live .mark-symbol.role-mark path")
    points.nth(1).click(force=True)
    said = figure.locator(".live svg text").filter(has_text="#")
    expect(said).to_have_count(1)
    number, _, label = said.text_content().partition(" ")
    # The row of the table with this number has this label.
    rows = page.locator("table.main th.row").filter(has_text=number)
    assert label and label.partition(": ")[2] in " ".join(rows.all_text_contents())
    # The legend shows one search alone.
    entry = figure.locator(".live .role-legend-symbol path").first
    before = figure.locator(".live").inner_html()
    entry.click(force=True)
    page.wait_for_function("([f, html]) => f.innerHTML != html", arg=[figure.locator(".live").element_handle(), before])
    for media, still in (("screen", False), ("print", True)):
        page.emulate_media(media=media)
        assert figure.locator(".still").is_visible() == still and figure.locator(".live").is_visible() != still
    assert wrong == []
    page.close()
    # Without a program, pictures stand in its place.
    without = browser.new_context(java_script_enabled=False).new_page()
    without.goto(written.as_uri(), timeout=PATIENCE)
    assert without.locator(".still svg").first.is_visible()
    without.close()
    main(["compare", str(written.parent), "--output", str(tmp_path / "compared.html")])
    assert_fits(browser, tmp_path / "compared.html")


def test_the_first_table_is_read_without_scrolling(browser, written):
    """At any width; where it is narrow, every cell says its head. Print has the table as it is."""
    for width in WIDTHS:
        page, _ = opened(browser, written, width)
        table = page.locator("#take table").first
        assert table.evaluate("table => table.parentElement.scrollWidth <= table.parentElement.clientWidth")
        heads = table.locator("th").all_text_contents()
        cells = table.locator("tbody tr").first.locator("td")
        said = cells.evaluate_all("cells => cells.map(cell => getComputedStyle(cell, '::before').content)")
        narrow = width < 640
        assert table.locator("thead").is_visible() != narrow
        assert said == [f'"{head}"' for head in heads] if narrow else set(said) == {"none"}
        page.emulate_media(media="print")
        assert table.locator("thead").is_visible()
        page.close()


def test_a_plan_fits(browser, tmp_path):
    # Snakemake plans in no process in which the browser's events are awaited.
    words = python_module("workflow_src.cli", "plan", "smoke", "--output", str(tmp_path / "plan.html"))
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    subprocess.run(words, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=120)
    assert_fits(browser, tmp_path / "plan.html")
