"""The vocabulary of the notebooks: open an engine, drive its lifecycle, watch requests, judge, show."""

import sys

# nbformat's jsonschema would load a grammar of IRIs, which takes 3 s, and nothing in a notebook's schema is one
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

# ruff: noqa: E402
from reproducers.allocator import open_allocator
from reproducers.cells import check_parameters, promised, require, show_end, show_timeline
from reproducers.checks import CheckRunner
from reproducers.engine import Engine, EngineSettings, open_engine, parallel
from reproducers.errors import NotArmed
from reproducers.hold import Hold, post_in_flight, watch, watch_all
from reproducers.judgement import Judgement
from reproducers.metrics import Operations, offloaded_bytes, sleep_operations, sleep_state
from reproducers.models import DENSE, MODELS, OTHER_WEIGHTS
from reproducers.reference import Question, references, seen
from reproducers.request import together
from reproducers.residency import Residency, gate_and_memory, residency
from reproducers.states import Control, EngineFacts, Probe, Residue
from reproducers.transfer import open_trainer, transfer_backend, transfer_settings
from reproducers.transitions import Transitions
from reproducers.values import Call, Completion, Outcome, Verdict

__all__ = [
    "DENSE",
    "MODELS",
    "OTHER_WEIGHTS",
    "Call",
    "CheckRunner",
    "Completion",
    "Control",
    "Engine",
    "EngineFacts",
    "EngineSettings",
    "Hold",
    "Judgement",
    "NotArmed",
    "Operations",
    "Outcome",
    "Probe",
    "Question",
    "Residency",
    "Residue",
    "Transitions",
    "Verdict",
    "check_parameters",
    "gate_and_memory",
    "offloaded_bytes",
    "open_allocator",
    "open_engine",
    "open_trainer",
    "parallel",
    "post_in_flight",
    "promised",
    "references",
    "require",
    "residency",
    "seen",
    "show_end",
    "show_timeline",
    "sleep_operations",
    "sleep_state",
    "together",
    "transfer_backend",
    "transfer_settings",
    "watch",
    "watch_all",
]
