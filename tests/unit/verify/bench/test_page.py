"""The page in a headless Chromium. Screenshots go to the folder that TRTSPEC_SCREENSHOTS names, else to the test's."""

import os
import shutil
from pathlib import Path

import pytest

from trt_spec.verify.bench.render import write_bench

pytestmark = pytest.mark.browser

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
SMALLEST_PX = 10


@pytest.fixture(scope="module")
def chromium():
    """Debian's Chromium, driven over its own protocol. Missing it is a failure: whoever selects these has it."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert program, "no Chromium found: install the package chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, make_report, tmp_path):
    """open_page(viewport, scheme) -> the page, and what it asked for and complained of."""
    write_bench(make_report(), tmp_path)
    opened = []

    def show(viewport, scheme="light"):
        page = chromium.new_page(viewport=viewport, color_scheme=scheme)
        opened.append(page)
        requests, complaints = [], []
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto((tmp_path / "bench.html").as_uri())
        page.wait_for_load_state("networkidle")
        return page, requests, complaints

    yield show
    for page in opened:
        page.close()


def keep_screenshot(page, name, tmp_path):
    folder = Path(os.environ.get("TRTSPEC_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{name}.png", full_page=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("viewport", "name"), [(PHONE, "phone"), (DESK, "desk")])
def test_it_loads_alone_and_without_complaint(open_page, tmp_path, viewport, name, scheme):
    page, requests, complaints = open_page(viewport, scheme)
    keep_screenshot(page, f"bench-{name}-{scheme}", tmp_path)
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in requests if url.startswith("file:")]) == 1


def test_five_plots_are_visible(open_page):
    page, _, _ = open_page(PHONE)
    plots = page.locator("svg.plot")
    assert plots.count() == 5
    for index in range(5):
        box = plots.nth(index).bounding_box()
        assert box["width"] > 300
        assert box["height"] > 180
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
        assert plots.nth(index).locator("path").count() > 10


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_on_a_phone(open_page, scheme):
    page, _, _ = open_page(PHONE, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    sizes = page.evaluate(
        """[...document.querySelectorAll("p, li, td, th, dd, figcaption, svg text")].map((element) => {
          const scale = element.ownerSVGElement ? Math.hypot(element.getScreenCTM().a, element.getScreenCTM().b) : 1;
          return parseFloat(getComputedStyle(element).fontSize) * scale; })"""
    )
    assert len(sizes) > 100
    assert min(sizes) >= SMALLEST_PX


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_stand_out_from_the_page(open_page, scheme):
    page, _, _ = open_page(PHONE, scheme)
    colours = page.evaluate(
        """() => { const luminance = (text) => { const [r, g, b] = text.match(/[0-9.]+/g).slice(0, 3).map((v) => {
            const c = v / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          const paper = luminance(getComputedStyle(document.body).backgroundColor);
          return [...document.querySelectorAll("p, td, th button, svg text")].map((element) => {
            const style = getComputedStyle(element);
            const ink = luminance(element.ownerSVGElement ? style.fill : style.color);
            return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05); }); }"""
    )
    assert min(colours) >= 4.5  # WCAG AA


def test_a_table_sorts_both_ways_by_number(open_page):
    page, _, _ = open_page(DESK)
    table = page.locator("section, .scroll").filter(has=page.locator("th", has_text="not answered")).first
    heading = table.locator("th").filter(has_text="tokens/s").first
    place = table.locator("th").all_inner_texts().index("tokens/s")

    def column():
        return [float(row.locator("td").nth(place).inner_text()) for row in table.locator("tbody tr").all()]

    before = column()
    assert before != sorted(before)
    heading.locator("button").click()
    assert column() == sorted(before)
    assert heading.get_attribute("aria-sort") == "ascending"
    heading.locator("button").click()
    assert column() == sorted(before, reverse=True)
    table.locator("th button").first.press("Enter")  # headings work from the keyboard
    assert heading.get_attribute("aria-sort") is None
