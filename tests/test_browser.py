"""The report in a browser: wide and narrow, light and dark, nothing cut, nothing fetched.

Needs Chromium, headless; without one these tests are skipped.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from onesided import OneSidedCompletion, Panel, synthetic
from onesided.report.report import Report
from onesided.report.style import DARK, LIGHT

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (1280, 390)
SCHEMES = {"light": LIGHT, "dark": DARK}

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: chromium, chromium-browser or google-chrome")

# A page that shows the report in frames of both widths, and writes down what it measures there.
WRAPPER = """<!DOCTYPE html><meta charset="utf-8"><body>{frames}<pre id="measured"></pre><script>
addEventListener("load", () => {{
  const found = [...document.querySelectorAll("iframe")].map(frame => {{
    const page = frame.contentDocument, view = frame.contentWindow, wide = page.documentElement.clientWidth;
    const seen = [...page.body.querySelectorAll("*")].filter(one => !one.closest("svg") || one.tagName === "svg");
    const name = one => one.tagName + "." + one.className + ": " + one.textContent.slice(0, 40);
    return {{
      width: wide,
      scrolls: page.documentElement.scrollWidth,
      over: seen.filter(one => !one.closest(".wide > *") && one.getBoundingClientRect().right > wide + 1).map(name),
      spilling: seen.filter(one => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0
        && !one.closest(".wide") && view.getComputedStyle(one).display !== "inline").map(name),
      pictures: page.querySelectorAll("svg").length,
      silent: [...page.querySelectorAll("svg")].filter(one => one.getAttribute("role") !== "img"
        || !one.getAttribute("aria-label")).length,
      cut: [...page.querySelectorAll("svg text")].filter(one => {{
        const a = one.getBoundingClientRect(), b = one.closest("svg").getBoundingClientRect();
        return a.left < b.left - 2 || a.right > b.right + 2 || a.top < b.top - 2 || a.bottom > b.bottom + 2;
      }}).map(one => one.textContent),
      smallest: Math.min(...[...page.querySelectorAll("svg text")].map(one =>
        parseFloat(view.getComputedStyle(one).fontSize) * Math.hypot(one.getScreenCTM().a, one.getScreenCTM().b))),
      fetched: view.performance.getEntriesByType("resource").map(one => one.name),
      ground: view.getComputedStyle(page.body).backgroundColor,
      ink: view.getComputedStyle(page.querySelector("svg text")).fill,
    }};
  }});
  document.getElementById("measured").textContent = JSON.stringify(found);
}});
</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report with every picture there is, and names of all lengths."""
    folder = tmp_path_factory.mktemp("browser")
    truth = synthetic.linear_mixture(400, 24, 2, rng=0)
    panel = synthetic.sample_bernoulli(truth, 0.3, rng=1)
    noise = np.random.default_rng(2).normal(0, 0.3, panel.n_entries)
    panel = Panel(panel.indptr, panel.columns, panel.values + noise, 24)
    model = OneSidedCompletion(center="columns", diagonal="free", random_state=0, blend=None).fit(panel)
    assert model.rank_ > 1
    names = {
        j: f"A column with a name of {'many ' * (j % 9)}words and {'unbroken' * (j % 4)} letters" for j in range(24)
    }
    Report.of(model, names=names | {3: "寿司" * 20, 4: "$<&>$"}).write(folder / "report.html")
    return folder / "report.html"


def chromium(*arguments):
    """What Chromium prints: no network, no profile of its own."""
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files"]
    options += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=5000"]
    done = subprocess.run([CHROMIUM, *options, *map(str, arguments)], capture_output=True, timeout=60, check=True)
    return done.stdout.decode()


@pytest.fixture(scope="module", params=SCHEMES)
def measured(request, page):
    frames = "".join(f'<iframe src="{page.name}" style="width:{w}px;height:900px;border:0"></iframe>' for w in WIDTHS)
    wrapper = page.with_name("wrapper.html")
    wrapper.write_text(WRAPPER.format(frames=frames), encoding="utf-8")
    setting = f"--blink-settings=preferredColorScheme={list(reversed(SCHEMES)).index(request.param)}"
    dom = chromium(setting, "--window-size=1400,1000", "--dump-dom", wrapper.as_uri())
    text = re.search(r'<pre id="measured">(.*?)</pre>', dom, flags=re.DOTALL)[1]
    return request.param, json.loads(html.unescape(text))


def test_nothing_overflows(measured):
    for frame, width in zip(measured[1], WIDTHS, strict=True):
        assert frame["width"] == width
        assert frame["scrolls"] == width
        assert frame["over"] == []
        assert frame["spilling"] == []


def test_pictures_can_be_read_and_have_words(measured):
    for frame in measured[1]:
        assert frame["pictures"] == 6  # entries, choice, spectrum, map, intervals, T
        assert frame["silent"] == 0
        assert frame["cut"] == []
        assert frame["smallest"] >= 8.5  # pixels


def test_the_scheme_is_the_readers(measured):
    scheme, frames = measured
    for frame in frames:
        assert frame["ground"] == rgb(SCHEMES[scheme]["ground"])
        assert frame["ink"] == rgb(SCHEMES[scheme]["ink"])


def test_nothing_is_fetched(measured):
    assert all(frame["fetched"] == [] for frame in measured[1])


def test_it_can_be_printed(page):
    chromium(f"--print-to-pdf={page.with_suffix('.pdf')}", "--no-pdf-header-footer", page.as_uri())
    assert page.with_suffix(".pdf").read_bytes()[:5] == b"%PDF-"


def rgb(colour):
    return f"rgb({', '.join(str(int(colour[k : k + 2], 16)) for k in (1, 3, 5))})"
