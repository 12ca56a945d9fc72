"""The vocabulary of the notebooks: open an engine, drive its lifecycle, watch requests, judge, show."""

from reproducers.cells import check_parameters, require, show_end, show_timeline
from reproducers.engine import Engine, EngineSettings, open_engine
from reproducers.hold import Hold, watch
from reproducers.judgement import Judgement
from reproducers.request import together
from reproducers.states import Control, EngineFacts, Probe, Residue
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
    "Verdict",
    "check_parameters",
    "open_engine",
    "require",
    "show_end",
    "show_timeline",
    "together",
    "watch",
]
