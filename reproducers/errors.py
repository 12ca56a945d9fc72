"""What can go wrong with the kit itself; a bug in vLLM is never an exception here but a verdict.

ReproError
├── UsageError            the caller's input is wrong; nothing was started (exit 2)
├── NotApplicable         this release or device lacks what the bug needs, which is named
├── HarnessError          the kit could not tell (exit 3)
│   ├── EngineUnavailable no engine that this bug could be judged on: not there, not vLLM, not awake, no dev mode
│   ├── EngineFailed      an engine was started and did not come up
│   ├── EndpointError     an endpoint that must answer did not answer as the release documents
│   └── NotArmed          what a check is about cannot be proven to have happened
└── RecordError           a record is not whole or not honest (exit 1)
"""

__all__ = [
    "EndpointError",
    "EngineFailed",
    "EngineUnavailable",
    "HarnessError",
    "NotApplicable",
    "NotArmed",
    "RecordError",
    "ReproError",
    "UsageError",
]


class ReproError(Exception):
    """Base of all errors of the kit; its text is one line that says what is wrong and what to do."""


class UsageError(ReproError):
    """The caller's input is wrong; nothing was started."""


class NotApplicable(ReproError):
    """This release or device lacks what the bug needs."""


class HarnessError(ReproError):
    """The kit could not tell, which is never evidence about vLLM."""


class EngineUnavailable(HarnessError):
    """There is no engine that the bug could be judged on."""


class EngineFailed(HarnessError):
    """An engine was started and did not come up."""


class EndpointError(HarnessError):
    """An endpoint that must answer did not answer as the release documents."""


class NotArmed(HarnessError):
    """What a check is about is not proven to have happened: a request may have ended before the call that cuts it."""


class RecordError(ReproError):
    """A record is not whole or not honest."""
