"""What people look at: records as Markdown and HTML, the sweep's page; in a real browser where there is one."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options
from conftest import ROOT
from nbformat.v4 import new_output
from test_sweep_results import STOCK, UNDO, result

from reproducers.coverage import ROWS_MIME
from reproducers.journal import JOURNAL_MIME
from reproducers.record.metadata import output_of
from reproducers.record.read import Record, read
from reproducers.report.comment import COMMENT_LIMIT, comment
from reproducers.report.form import form
from reproducers.report.page import html_page
from reproducers.sweep.page import write_page
from reproducers.sweep.results import rows_of

RECORDS = sorted((ROOT / "notebooks" / "records").glob("*/*.ipynb"))
HELD = ROOT / "notebooks" / "records" / "45326" / "vllm-0.32.0-cpu.ipynb"
ARTIFACTS = ROOT / "artifacts"
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
NASTY = (
    "<script>alert(1)</script><img src=http://evil.example/x onerror=alert(2)> [c](javascript:alert(3)) "
    "![p](http://evil.example/p) @someone #1 | `x` \x00\x1b[31m"
)


def rendered(markdown: str) -> str:
    """As GitHub renders it, before it takes away what it does not allow."""
    html: str = cmarkgfm.github_flavored_markdown_to_html(markdown, options=Options.CMARK_OPT_UNSAFE)
    return html


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_comment_and_form_of_every_record_stand_alone(path: Path) -> None:
    record = read(path)
    for text in (comment([record]), form(record)):
        html = rendered(text)
        assert len(text) < COMMENT_LIMIT
        assert html.count("<details>") == html.count("</details>")
        assert html.count("<table>") >= 1
        assert set(re.findall(r"<(\w+)", html)) <= {
            "a", "code", "details", "em", "h3", "input", "li", "p", "pre", "strong", "sub", "summary", "table",
            "tbody", "td", "th", "thead", "tr", "ul",
        }  # fmt: skip


def with_memory(record: Record) -> bool:
    """Whether the figure of a record has what memory did."""
    return bool((output_of(record.node, JOURNAL_MIME) or {}).get("memory"))


EXPORTED = {
    "plain": next(p for p in RECORDS if p.parent.name != "45585" and not with_memory(read(p))),
    "with a memory plot": next(p for p in RECORDS if p.parent.name != "45585" and with_memory(read(p))),
    "the matrix": next(p for p in RECORDS if p.parent.name == "45585" and output_of(read(p).node, ROWS_MIME)),
}
"""Three records that stand for all where an export takes a second; chosen by what is in them."""


@pytest.mark.parametrize("kind", EXPORTED)
def test_the_page_of_a_record_stands_alone(kind: str) -> None:
    record = read(EXPORTED[kind])
    page = html_page(record)
    assert str(record.judgement.verdict) in page
    assert len(page) < 1_000_000
    assert "<script" not in page
    assert not re.findall(r"""<(?:img|link|iframe)[^>]+(?:src|href)=["'](?!data:)[^"']+""", page)
    assert "Content-Security-Policy" in page


def test_the_form_has_the_fields_of_vllms_form_in_their_order() -> None:
    text = form(read(HELD))
    headings = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert headings == ["Your current environment", "🐛 Describe the bug", "Before submitting a new issue..."]
    assert "<summary>The output of <code>python collect_env.py</code></summary>" in text
    assert "PyTorch version" in text
    assert "vLLM Version" in text


@pytest.fixture
def nasty() -> Record:
    """A record whose server answered with markup, control characters and a table's marks."""
    record = read(HELD)
    judgement = replace(record.judgement, evidence=(NASTY, NASTY), control=f"passed: {NASTY}", signature=NASTY)
    for cell in record.node.cells:
        if cell.get("id") == "timeline":
            call = {"method": "POST", "path": "/sleep", "params": {"x": NASTY}, "payload": None, "start": 1, "end": 2}
            data = {
                "calls": [call | {"status": 500, "body": NASTY, "error": ""}],
                "requests": [],
                "events": [[3, NASTY]],
            }
            shown = {"text/markdown": NASTY, "text/html": NASTY, "application/vnd.reproducers.journal+json": data}
            cell.outputs.append(new_output("display_data", data=shown))
            cell.outputs.append(new_output("display_data", data={"application/javascript": "alert(4)"}))
            cell.outputs.append(new_output("stream", name="stdout", text=NASTY))
    return replace(record, judgement=judgement)


def test_nothing_of_a_servers_answer_is_rendered_as_markup_or_run(nasty: Record) -> None:
    for text in (comment([nasty], [nasty]), form(nasty)):
        html = rendered(text)
        assert "<script" not in html
        assert "<img" not in html
        assert "evil.example" not in " ".join(re.findall(r'(?:href|src)="([^"]*)"', html))
        assert "javascript:" not in " ".join(re.findall(r'href="([^"]*)"', html))
        assert "\x00" not in text
        assert "\x1b" not in text
    page = html_page(nasty)
    assert "<script" not in page
    assert "\x00" not in page
    assert not re.findall(r"<[^>]+onerror", page)
    assert "alert(4)" not in page


def browse(page: Path, folder: Path, shot: Path) -> list[str]:
    """Open a page in a browser that can resolve no name; return what it asked of anything but files."""
    log = folder / "net.json"
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1300,3600"]
    options += ["--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking", "--disable-sync"]
    options += ["--disable-component-update", "--no-first-run", f"--user-data-dir={folder / 'profile'}"]
    options += [f"--log-net-log={log}", f"--screenshot={shot}", "--virtual-time-budget=3000"]
    subprocess.run([str(BROWSER), *options, page.as_uri()], capture_output=True, timeout=120, check=True)
    asked = re.findall(r'"url":"((?:https?|wss?)://[^"]+)"', log.read_text(errors="replace"))
    return [url for url in asked if not re.search(r"google|gstatic|gvt1|chromium", url)]


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium: apt-get install chromium")
def test_the_pages_open_in_a_browser_without_network_and_ask_for_nothing(nasty: Record, tmp_path: Path) -> None:
    ARTIFACTS.mkdir(exist_ok=True)
    pages = {"record": html_page(read(HELD)), "nasty": html_page(nasty)}
    pages["comment"] = f"<meta charset=utf-8><body style='font-family:sans-serif'>{rendered(comment([read(HELD)]))}"
    pages["comment"] = pages["comment"].replace("<details>", "<details open>")
    for name, text in pages.items():
        page = tmp_path / f"{name}.html"
        page.write_text(text)
        shot = ARTIFACTS / f"{name}.png"
        assert browse(page, tmp_path, shot) == []
        assert shot.stat().st_size > 10_000


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium: apt-get install chromium")
def test_the_page_of_a_sweep_opens_in_a_browser_and_asks_for_nothing(tmp_path: Path) -> None:
    found = [result("44483", "FIXED"), result("45326", "REPRODUCED"), result("45518", "FIXED")]
    found += [result("44483", "REPRODUCED", UNDO), result("45552", "NOT_APPLICABLE", record="")]
    older = replace(STOCK, release="0.30.0")
    found += [result("partial-wake-metric", "FIXED"), result("partial-wake-metric", "REPRODUCED", older)]
    write_page(rows_of(found, "fix"), tmp_path / "index.html", seconds=600, starts=3)
    ARTIFACTS.mkdir(exist_ok=True)
    shot = ARTIFACTS / "sweep.png"
    assert browse(tmp_path / "index.html", tmp_path, shot) == []
    assert shot.stat().st_size > 10_000


def test_the_figure_is_small_and_has_alternative_text() -> None:
    for cell in read(HELD).node.cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                assert len(output["data"]["image/png"]) * 3 / 4 < 120_000
                assert output.metadata["image/png"]["alt"].startswith("Time line of ")
                return
    pytest.fail(f"no figure: {json.dumps([c.get('id') for c in read(HELD).node.cells])}")
