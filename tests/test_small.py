"""Records stay small: long streams and tracebacks are cut in their middle, and what is huge is named and not read."""

import json
import subprocess
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from notebooks import notebook, papermill_command
from reproducers.errors import RecordError
from reproducers.record.check import check
from reproducers.record.read import read
from reproducers.record.small import OUTPUT_LIMIT, StreamCutter, cut_outputs


def test_of_a_long_stream_the_beginning_and_the_end_stay() -> None:
    cutter, outputs = StreamCutter(), [new_output("stream", name="stdout", text="")]
    for i in range(30_000):
        text = f"line {i:06}\n"
        if not outputs or outputs[-1].name != "stdout":
            outputs.append(new_output("stream", name="stdout", text=""))
        outputs[-1].text += text
        cutter.take(outputs, "stdout", text)
    cutter.finish(outputs)
    whole = "".join(output.text for output in outputs)
    assert len(whole) < 1.1 * OUTPUT_LIMIT
    assert whole.startswith("line 000000\n")
    assert whole.endswith("line 029999\n")
    kept = whole.count("line ")
    assert f"… {12 * (30_000 - kept)} characters left out …" in whole


def test_a_short_stream_is_left_as_it_is() -> None:
    cutter, outputs = StreamCutter(), [new_output("stream", name="stdout", text="short\n")]
    cutter.take(outputs, "stdout", "short\n")
    cutter.finish(outputs)
    assert [output.text for output in outputs] == ["short\n"]


def test_tracebacks_and_shown_texts_are_cut_and_data_is_not() -> None:
    long = "x" * (2 * OUTPUT_LIMIT)
    error = new_output("error", ename="E", evalue=long, traceback=[long, "last line"])
    data = {"text/plain": long, "application/x+json": {"a": long}}
    node = new_notebook(cells=[new_code_cell("", outputs=[error, new_output("display_data", data=data)])])
    cut_outputs(node)
    error, shown = node.cells[0].outputs
    assert len(error.evalue) <= OUTPUT_LIMIT
    assert len("\n".join(error.traceback)) <= OUTPUT_LIMIT
    assert error.traceback[-1].endswith("last line")
    assert len(shown["data"]["text/plain"]) <= OUTPUT_LIMIT
    assert len(shown["data"]["application/x+json"]["a"]) == len(long)


def test_a_notebook_that_prints_much_leaves_a_small_record(tmp_path: Path) -> None:
    source = notebook(tmp_path / "case.ipynb", "for i in range(200): print('y' * 50_000)", "print('\\x00 and on')")
    command = papermill_command(source, tmp_path / "record.ipynb")
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    record = tmp_path / "record.ipynb"
    assert record.stat().st_size < 300_000
    text = record.read_text()
    assert "characters left out" in text
    assert "and on" in text


def test_a_record_of_200_megabytes_is_named_with_its_largest_cell_and_not_looked_through(tmp_path: Path) -> None:
    path = tmp_path / "huge.ipynb"
    output = {"output_type": "stream", "name": "stdout", "text": "z" * 200_000_000}
    cells = [{"id": "control", "cell_type": "code", "outputs": []}, {"id": "trigger", "outputs": [output]}]
    path.write_text(json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}))
    (fault,) = check(path)
    assert "too large for a record: the largest cell is 'trigger'" in fault
    with pytest.raises(RecordError, match="too large for a record"):
        read(path)


@pytest.mark.parametrize("content", [b"\x00" * 100, b'{"cells": [\x00]}', b"\x00\xff\xfe"])
def test_nul_bytes_are_no_record(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "nul.ipynb"
    path.write_bytes(content)
    (fault,) = check(path)
    assert "not a notebook" in fault
