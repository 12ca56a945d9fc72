"""Keep a record small: of long outputs the beginning and the end stay, with a note of how much was left out."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_output

from reproducers.texts import cut_middle, left_out

__all__ = ["OUTPUT_LIMIT", "StreamCutter", "cut_outputs", "largest_cell"]

OUTPUT_LIMIT = 100_000
"""Characters of one cell's streams, of one traceback, and of one text that is shown."""


class StreamCutter:
    """Takes one cell's stream outputs out of it while it runs, from where they are too long on."""

    def __init__(self) -> None:
        self._head = 0
        self._tail: deque[tuple[str, str]] = deque()
        self._held = 0
        self._dropped = 0

    def take(self, outputs: list[NotebookNode], name: str, text: str) -> None:
        """Look at what a stream message has just added to a cell's outputs."""
        half = OUTPUT_LIMIT // 2
        if self._head + len(text) <= half and not self._tail:
            self._head += len(text)
            return
        last = outputs[-1]
        last.text = last.text.removesuffix(text)
        if not last.text:
            outputs.pop()
        self._tail.append((name, text[-half:]))
        self._held += min(len(text), half)
        self._dropped += max(0, len(text) - half)
        while self._held - len(self._tail[0][1]) > half:
            gone = len(self._tail.popleft()[1])
            self._held -= gone
            self._dropped += gone

    def finish(self, outputs: list[NotebookNode]) -> None:
        """Put the end of the streams back into the outputs, behind a note of how much was left out."""
        if not self._tail:
            return
        note = left_out(self._dropped) if self._dropped else ""
        outputs.append(
            new_output("stream", name=self._tail[-1][0], text=note + "".join(text for _, text in self._tail))
        )


def largest_cell(cells: Sequence[Any]) -> str:
    """Say which cell is the largest: what to look at first where a record is too large."""
    return f"the largest cell is '{max(cells, key=lambda cell: len(str(cell))).get('id')}'"


def cut_outputs(node: NotebookNode) -> None:
    """Cut the tracebacks and the texts that a notebook shows; data and pictures are left alone."""
    for cell in node.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                output.evalue = cut_middle(output.evalue, OUTPUT_LIMIT)
                output.traceback = cut_middle("\n".join(output.traceback), OUTPUT_LIMIT).split("\n")
            for mime, value in output.get("data", {}).items():
                if mime.startswith("text/") and isinstance(value, str):
                    output["data"][mime] = cut_middle(value, OUTPUT_LIMIT)
