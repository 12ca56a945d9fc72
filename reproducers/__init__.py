"""The vocabulary of the notebooks: open an engine, drive its lifecycle, watch requests, judge, show."""

import sys

# nbformat's jsonschema would load a grammar of IRIs, which takes 3 s, and nothing in a notebook's schema is one
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

# ruff: noqa: E402
from reproducers.allocator import open_allocator
from reproducers.cells import check_parameters, promised, require, show_end, show_timeline
from reproducers.engine import Engine, EngineSettings, open_engine, parallel
from reproducers.hold import Hold, post_in_flight, watch, watch_all
from reproducers.judgement import Judgement
from reproducers.metrics import offloaded_bytes, sleep_state
from reproducers.models import MODELS
from reproducers.request import together
from reproducers.residency import Residency, gate_and_memory, residency
from reproducers.states import Control, EngineFacts, Probe, Residue
from reproducers.transitions import Transitions
from reproducers.values import Call, Completion, Outcome, Verdict

__all__ = [
    "MODELS",
    "Call",
    "Completion",
    "Control",
    "Engine",
    "EngineFacts",
    "EngineSettings",
    "Hold",
    "Judgement",
    "Outcome",
    "Probe",
    "Residency",
    "Residue",
    "Transitions",
    "Verdict",
    "check_parameters",
    "gate_and_memory",
    "offloaded_bytes",
    "open_allocator",
    "open_engine",
    "parallel",
    "post_in_flight",
    "promised",
    "require",
    "residency",
    "show_end",
    "show_timeline",
    "sleep_state",
    "together",
    "watch",
    "watch_all",
]
