"""Planted secrets: whatever way they come into a notebook, they are in no record, report, page or script."""

import json
import subprocess

import nbformat
import pytest
from conftest import ROOT
from nbformat.v4 import new_code_cell
from planted import ORDINARY, PLANTED

from notebooks import papermill_command
from reproducers.record.check import check
from reproducers.record.metadata import KEY
from reproducers.record.read import Record, read
from reproducers.report.comment import comment
from reproducers.report.form import form
from reproducers.report.page import html_page
from reproducers.report.script import script

NOTEBOOK = ROOT / "notebooks" / "45326-request-during-sleep.ipynb"

LEAKS = """
import json
from pathlib import Path
from IPython.display import HTML, Markdown, display
from reproducers.journal import JOURNAL_MIME
from reproducers.states import ENVIRONMENT_MIME
from reproducers.judgement import Judgement
from reproducers.values import Verdict

planted = json.loads(Path("planted.json").read_text())
for text in planted:
    print("server log:", text)                                         # a log
    display(Markdown(f"answer {text}"), HTML(f"<pre>{text}</pre>"))    # response bodies
said = " ~ ".join(planted)
call = {"method": "POST", "path": "/sleep", "params": {"level": 1}, "start": 0.1, "end": 0.2}
call |= {"status": 500, "error": ""}
calls = [call | {"payload": {"note": text}, "body": text} for text in planted]
request = {"name": "request 1", "posted": 0.3, "first_token": None, "last_token": None, "ended": 0.4, "status": 500}
request |= {"tokens": 0, "outcome": "FAILED", "error": said, "payload": {"prompt": said, "max_tokens": 16}}
data = {"calls": calls, "requests": [request], "events": [[0.5, said]], "memory": {}}
display({"text/markdown": "calls", JOURNAL_MIME: data}, raw=True)
display({"text/markdown": "environment", ENVIRONMENT_MIME: {"collect_env": "\\n".join(planted)}}, raw=True)
display(Judgement("45326", Verdict.OTHER_FAILURE, tuple(planted), f"passed: {said}", signature=said))
def deep(secret):
    raise RuntimeError("the server said " + secret)
"""


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A record of a notebook that leaks in every way at once, made as every record is made."""
    folder = tmp_path_factory.mktemp("planted")
    texts = [text for text, _ in PLANTED]
    (folder / "planted.json").write_text(json.dumps(texts))
    node = nbformat.read(NOTEBOOK, as_version=4)
    assigned = "\n".join(f"s{i} = {text!r}" for i, text in enumerate([*texts, *ORDINARY]))
    raised = f"deep(' ~ '.join(planted))  # {texts[0]}"
    node.cells = node.cells[:2] + [new_code_cell(s, id=f"c{i}") for i, s in enumerate([assigned, LEAKS, raised])]
    nbformat.write(node, folder / NOTEBOOK.name)
    command = papermill_command(folder / NOTEBOOK.name, folder / "record.ipynb", "-p", "engine", "http://10.2.3.4:8000")
    subprocess.run(command, cwd=folder, capture_output=True, check=False)
    return read(folder / "record.ipynb")


def test_they_are_in_no_record_report_form_page_or_script(record: Record) -> None:
    made = {
        "record": record.path.read_text(),
        "comment": comment([record]),
        "form": form(record),
        "page": html_page(record),
        "script": script(record),
    }
    for name, text in made.items():
        assert len(text) > 1000, name
        leaked = [secret for _, secret in PLANTED if secret in text]
        assert leaked == [], f"in the {name}"
        assert "10.2.3.4" not in text


def test_the_planted_set_is_large_and_was_counted(record: Record) -> None:
    assert len(PLANTED) >= 40
    masked = record.said["masked"]
    assert masked["a secret"] > 40
    assert {"a path of a machine", "an address", "a host", "a mail address", "an environment variable"} <= set(masked)
    assert not [fault for fault in check(record.path) if "it contains" in fault]


def test_ordinary_text_beside_them_is_left_alone(record: Record) -> None:
    sources = "\n".join(cell.source for cell in record.node.cells)
    for text in ORDINARY:
        assert repr(text) in sources
    assert record.node.metadata[KEY]["parameters"]["level"] == 1
