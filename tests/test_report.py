"""The comment, the comparison and the index, over the records that are kept."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT, repro

from reproducers.catalog import catalog
from reproducers.errors import RecordError
from reproducers.privacy import findings
from reproducers.record.read import read
from reproducers.report.comment import COMMENT_LIMIT, comment, duplicates, rerun_command
from reproducers.report.difference import calls_of, difference
from reproducers.report.index import index
from reproducers.texts import code_span, cut_middle

FOLDER = ROOT / "notebooks" / "records"
RECORDS = sorted(FOLDER.glob("*/*.ipynb"))
HELD = FOLDER / "45326" / "vllm-0.32.0-cpu.ipynb"
ABORTED = FOLDER / "45326" / "vllm-0.32.0-cpu-fix-proposed.ipynb"


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_comment_is_made_from_every_record(path: Path) -> None:
    record = read(path)
    text = comment([record])
    assert text.startswith(f"**{record.judgement.verdict}**")
    assert len(text) < COMMENT_LIMIT
    assert f"`{rerun_command(record)}`" in text
    assert record.said["digest"] in text
    assert text.count("<details>") == text.count("</details>") >= 1
    assert findings(record.node) == []


@pytest.mark.parametrize("path", [HELD, FOLDER / "45552" / "vllm-0.33.0-h200.ipynb"], ids=["cpu", "gpu"])
def test_the_page_of_a_record_is_one_file_that_fetches_nothing(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "record.html"
    assert repro("report", str(path), "--html", str(target)).returncode == 0
    text = target.read_text()
    assert len(text) < 1_000_000
    assert "data:image/png;base64," in text
    assert not re.findall(r"""<(?:script|img|link|iframe)[^>]+(?:src|href)=["'](?!data:)[^"']+""", text)
    assert not re.findall(r"""(?:@import|url\()\s*["']?https?:""", text)


def test_several_records_of_a_bug_make_one_table_and_those_of_two_bugs_are_refused() -> None:
    text = comment([read(HELD), read(ABORTED)])
    assert text.count("| 0.32.0 | cpu |") == 2
    with pytest.raises(RecordError, match="different bugs"):
        comment([read(HELD), read(FOLDER / "45518" / "vllm-0.32.0-cpu.ipynb")])


def test_duplicates_have_the_same_signature() -> None:
    record, all_records = read(HELD), [read(path) for path in RECORDS]
    same = duplicates(record, all_records)
    assert {other.said["bug"] for other in same} == {"45326"}
    assert all(other.judgement.signature == record.judgement.signature for other in same)
    assert record.path not in {other.path for other in same}
    assert "Other records with the same signature" in comment([record], same)


def test_evidence_cannot_break_the_comment_and_long_text_is_cut_in_the_middle() -> None:
    record = read(HELD)
    nasty = replace(record.judgement, evidence=("</details> <b>|```" + "x" * 100_000,))
    text = comment([replace(record, judgement=nasty)])
    assert "<b>" not in text
    live = replace(record.judgement, evidence=("[x](http://a) @someone __init__ ![y](z)",))
    shown = comment([replace(record, judgement=live)])
    assert "[x](" not in shown
    assert "@someone" not in shown
    assert code_span("a `b` ``c``") == "``` a `b` ``c`` ```"
    assert len(text) < COMMENT_LIMIT
    assert cut_middle("abc" * 100, 120).count("characters left out") == 1
    assert len(cut_middle("abc" * 100, 120)) <= 120


def test_two_records_are_compared() -> None:
    one, other = read(HELD), read(ABORTED)
    assert difference(one, one) == []
    lines = difference(one, other)
    assert "verdict: REPRODUCED | FIXED" in lines
    assert "parameter fix: none | proposed" in lines
    assert any(line.startswith("evidence, first only: A request posted after /sleep was held") for line in lines)
    assert "`POST /sleep?level=1` → 200" in calls_of(one)


def test_the_index_is_what_the_records_say() -> None:
    page = (FOLDER / "README.md").read_text()
    assert index(list(catalog().values()), FOLDER) == page, "run: repro index --write"
    assert page.count(".ipynb)") == len(RECORDS)


def test_the_commands_print_and_exit(tmp_path: Path) -> None:
    done = repro("report", str(HELD))
    assert done.returncode == 0
    assert done.stdout.startswith("**REPRODUCED** on vLLM 0.32.0, cpu (1 of 1 runs): ")
    assert repro("diff", str(HELD), str(HELD)).returncode == 0
    assert repro("diff", str(HELD), str(ABORTED)).returncode == 1
    (tmp_path / "no.ipynb").write_text("{")
    broken = repro("report", str(tmp_path / "no.ipynb"))
    assert broken.returncode == 1
    assert broken.stderr.startswith("error: is truncated or not a notebook")
