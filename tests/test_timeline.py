"""The time line: table, figure and words."""

import base64
import io

import matplotlib.image
from test_request_during_sleep import ANSWERED, SLEPT, WAITING

from reproducers.timeline import Timeline
from reproducers.values import Call, Sample

SAMPLES = [
    *(Sample(t / 4, "health", 1.0) for t in range(20)),
    *(Sample(t / 4, "is_sleeping", float(2 <= t < 18)) for t in range(20)),
    Sample(5.0, "health", None),
]
FAILED = Call("POST", "/wake_up", {}, 5.5, 5.6, None, "", "ReadTimeout: |<b>timed out</b>|")
LINE = Timeline([SLEPT, FAILED], [ANSWERED], SAMPLES, [(5.7, "VLLM::EngineCore died")], (0.49, 5.49))


def test_the_table_has_calls_requests_and_events_in_order_and_no_markup_of_theirs() -> None:
    rows = LINE.table().splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == ["0.48", "0.49", "5.50", "5.70"]
    assert "`POST /sleep?level=1`" in rows[0]
    assert "COMPLETED, 3 tokens" in rows[1]
    assert rows[2].endswith("| `ReadTimeout: \\|<b>timed out</b>\\|` |")
    assert "\\|" in rows[2]
    assert "EngineCore died" in rows[3]


def test_the_figure_is_small_and_changes_with_memory() -> None:
    png = LINE.png()
    assert 5_000 < len(png) < 120_000
    height = matplotlib.image.imread(io.BytesIO(png)).shape[0]
    memory = [Sample(t / 4, "device bytes", 2.0**30 * t) for t in range(20)]
    taller = Timeline(LINE.calls, LINE.lives, [*SAMPLES, *memory], LINE.marks)
    assert matplotlib.image.imread(io.BytesIO(taller.png())).shape[0] > height


def test_the_figure_is_told_in_words() -> None:
    data, metadata = LINE._repr_mimebundle_()
    assert metadata["image/png"]["alt"] == data["text/plain"]
    assert "request 2 posted at 0.5 s, ended at 5.7 s (COMPLETED)" in data["text/plain"]
    assert base64.b64encode(data["image/png"])


def test_an_empty_run_and_an_open_request_can_be_drawn() -> None:
    assert Timeline([], [], [], []).png()
    assert "still open" in Timeline([SLEPT], [WAITING], [], []).alt_text
