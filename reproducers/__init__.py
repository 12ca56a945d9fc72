"""The vocabulary of the notebooks: open an engine, drive its lifecycle, watch requests, judge, show."""

from reproducers.cells import check_parameters, promised, require, show_end, show_timeline
from reproducers.engine import Engine, EngineSettings, open_engine
from reproducers.hold import Hold, post_in_flight, watch, watch_all
from reproducers.judgement import Judgement
from reproducers.metrics import sleep_state
from reproducers.request import together
from reproducers.states import Control, EngineFacts, Probe, Residue
from reproducers.transitions import Transitions
from reproducers.values import Call, Completion, Outcome, Verdict

__all__ = [
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
    "Residue",
    "Transitions",
    "Verdict",
    "check_parameters",
    "open_engine",
    "post_in_flight",
    "promised",
    "require",
    "show_end",
    "show_timeline",
    "sleep_state",
    "together",
    "watch",
    "watch_all",
]
