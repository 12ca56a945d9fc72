"""Start an engine: its command line, its environment, and the wait until it serves."""

import os
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from reproducers.engine.installation import Installation
from reproducers.engine.log import stage
from reproducers.engine.process import OWNER_VARIABLE, EngineProcess, free_port
from reproducers.engine.switch import FIX_VARIABLE, FixSwitch
from reproducers.errors import EngineFailed
from reproducers.models import DENSE, ModelRecipe, checkpoints, made

__all__ = ["STARTS_VARIABLE", "EngineSettings", "Started", "command_of", "environment_of", "parallel_flags", "start"]

START_BOUND_S = 600.0
"""An engine takes about a minute; with CUDA graphs on a busy host, several."""

STARTS_VARIABLE = "REPRO_STARTS"
"""Names a file to which every start of an engine adds a line: release, device, model, fixes."""

_INHERITED = re.compile(
    r"PATH|HOME|USER|LANG|LC_\w+|TZ|TMPDIR|PYTHONPATH|LD_\w+|CUDA_\w+|NVIDIA_\w+|NCCL_\w+|(OMP|MKL|OPENBLAS)_\w+|CC|CXX"
    r"|TORCHINDUCTOR_\w+|TORCH_SYMM_MEM_\w+|NVSHMEM_\w+|TRITON_\w+|XDG_CACHE_HOME"
)
_DEVICE_FLAGS: Mapping[str, list[str]] = {
    "cpu": [],
    "cuda": ["--enable-sleep-mode", "--kv-cache-memory-bytes=2147483648", "--gpu-memory-utilization=0.2"],
    "emulated": ["--num-gpu-blocks-override=1024", "--mamba-ssm-cache-dtype=float32"],  # as some CPUs force upon it
}
_DEVICE_ENVIRONMENT: Mapping[str, dict[str, str]] = {
    "cpu": {"VLLM_CPU_KVCACHE_SPACE": "1", "REPRO_CPU": "1"},
    "cuda": {"VLLM_USE_FLASHINFER_SAMPLER": "0"},
    "emulated": {"VLLM_CPU_KVCACHE_SPACE": "1", "REPRO_CPU": "1", "REPRO_DRIVER": "scrubs"},
}
_FLAGS = ["--dtype=bfloat16", "--max-model-len=4096", "--enable-server-load-tracking"]
_FLAGS += ["--enable-prefix-caching", "--enable-prompt-tokens-details"]
_FLAGS += ["--worker-extension-cls=vllm_rl_repro_extension.Inside"]
_PLUGIN = Path(__file__).parent.parent / "inside" / "plugin"
"""The worker extension, the emulated driver and the fixes; the last two do nothing unless the environment asks."""


@dataclass(frozen=True)
class EngineSettings:
    """What an engine is started with, beside what its device asks for."""

    model: ModelRecipe = DENSE
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    graphs: bool = False
    """Whether CUDA graphs are captured; else it runs eager."""
    fix: str = ""
    """Fixes to load into its processes: `45326:proposed,45518:proposed`; empty for the release as it is."""
    spare_fixes: tuple[str, ...] = ()
    """Fixes to load as well, which are off until `Engine.with_fixes` turns them on."""

    @property
    def fixes_on(self) -> tuple[str, ...]:
        """The fixes that are on from the start."""
        return tuple(filter(None, self.fix.split(",")))

    @property
    def fixes_loaded(self) -> tuple[str, ...]:
        """All fixes that its processes load."""
        return tuple(dict.fromkeys((*self.fixes_on, *self.spare_fixes)))


@dataclass(frozen=True)
class Started:
    """An engine that serves, and how it was started."""

    process: EngineProcess
    url: str
    model: str
    settings: Mapping[str, str]
    switch: FixSwitch
    """Of the fixes that were loaded."""


def parallel_flags(tensor: int, data: int) -> tuple[str, ...]:
    """The flags of an engine over several GPUs; none for one."""
    sizes = {"tensor-parallel-size": tensor, "data-parallel-size": data}
    return tuple(f"--{name}={size}" for name, size in sizes.items() if size > 1)


def command_of(installation: Installation, settings: EngineSettings, model: Path, port: int) -> list[str]:
    """The engine's command line; on a CPU `vllm serve` finds no package metadata, the module does."""
    flags = _flags(installation, settings)
    where = ["--host=127.0.0.1", f"--port={port}", f"--model={model}", f"--served-model-name={settings.model.name}"]
    return [installation.python, "-m", "vllm.entrypoints.openai.api_server", *where, *flags]


def _flags(installation: Installation, settings: EngineSettings) -> list[str]:
    eager = [] if settings.graphs else ["--enforce-eager"]
    return [*eager, *_FLAGS, *_DEVICE_FLAGS[installation.device], *settings.model.flags, *settings.flags]


def environment_of(installation: Installation, settings: EngineSettings) -> dict[str, str]:
    """The engine's whole environment: what the machine needs from this process's, and what the kit sets."""
    inherited = {k: v for k, v in os.environ.items() if _INHERITED.fullmatch(k)}
    paths = [str(_PLUGIN), installation.site or inherited.get("PYTHONPATH")]
    inherited["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if settings.fixes_loaded:
        inherited[FIX_VARIABLE] = ",".join(settings.fixes_loaded)
    inherited["REPRO_CHECKPOINTS"] = str(checkpoints())  # where the kit's own weight-transfer backend reads
    return inherited | _set_by_kit(installation, settings)


def _set_by_kit(installation: Installation, settings: EngineSettings) -> dict[str, str]:
    fixed = {"VLLM_SERVER_DEV_MODE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    fixed |= {"VLLM_USE_V2_MODEL_RUNNER": "0", "PYTHONUNBUFFERED": "1"}
    fixed |= {"SPT_NOENV": "1"}  # a process that renames itself keeps its environment readable, and so its mark
    return fixed | _DEVICE_ENVIRONMENT[installation.device] | dict(settings.environment)


def start(installation: Installation, settings: EngineSettings, progress: Callable[[str], None]) -> Started:
    """Start an engine and wait until it serves.

    Args:
        installation: which release.
        settings: with what.
        progress: is told now and then how far the start is.

    Raises:
        EngineFailed: it ended, or did not serve within ten minutes; the text gives the root cause from its log.
    """
    owner = os.environ.get(OWNER_VARIABLE) or uuid.uuid4().hex
    environment = environment_of(installation, settings) | {OWNER_VARIABLE: owner}
    progress(f"making the model {settings.model.name}")
    model = made(settings.model, [installation.python], environment)
    keeper = free_port()
    port = int(keeper.getsockname()[1])
    scratch = Path(tempfile.mkdtemp(prefix="vllm-rl-repro-"))
    log = scratch / "engine.log"
    reports = scratch / "fix"
    reports.mkdir()
    switch = FixSwitch(scratch / "fixes", settings.fixes_loaded)
    fixes = switch.turn(settings.fixes_on)
    if switch.loaded:
        environment |= {"REPRO_FIX_REPORTS": str(reports), "REPRO_FIX_SWITCH": str(switch.path)}
    _note_start(installation, settings)
    process = EngineProcess(command_of(installation, settings, model, port), environment, log, port)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_serving(process, url, progress)
        if switch.loaded:
            _require_reports(reports, ", ".join(switch.loaded))
    except BaseException:
        process.stop()
        raise
    finally:
        keeper.close()
    process.note_members()
    flags = _flags(installation, settings)
    shown = {flag.split("=")[0]: flag.partition("=")[2] for flag in flags}
    shown |= _set_by_kit(installation, settings) | dict(fixes)
    others = [part for part in environment["PYTHONPATH"].split(os.pathsep) if part != str(_PLUGIN)]
    if others:  # what stands there may change the engine
        shown["PYTHONPATH"] = os.pathsep.join(Path(part).name for part in others)
    return Started(process, url, settings.model.name, shown, switch)


def _note_start(installation: Installation, settings: EngineSettings) -> None:
    """Add a line to the file that REPRO_STARTS names: whoever runs many notebooks can count what they started."""
    if path := os.environ.get(STARTS_VARIABLE):
        with Path(path).open("a", encoding="utf-8") as starts:
            starts.write(
                f"{installation.release} {installation.device} {settings.model.name} {settings.fix}".strip() + "\n"
            )


def _require_reports(reports: Path, fix: str) -> None:
    """See that the API server and the engine core have both loaded a fix; one that was not applied shows nothing."""
    if (n := len(list(reports.iterdir()))) < 2:
        raise EngineFailed(f"the fix {fix} was loaded by {n} of the engine's processes, and two at least must have it")


def _wait_until_serving(process: EngineProcess, url: str, progress: Callable[[str], None]) -> None:
    """Wait until /health answers 200; notice at once when the engine ends instead."""
    began = time.monotonic()
    served = False
    with httpx.Client(base_url=url, timeout=2, trust_env=False) as client:
        while not served:
            waited = time.monotonic() - began
            if not process.running():
                raise process.failure()
            if waited > START_BOUND_S:
                raise EngineFailed(f"/health did not answer 200 within {START_BOUND_S:.0f} s: {stage(process.log)}")
            progress(f"{stage(process.log)}, {waited:.0f} s")
            try:
                served = client.get("/health").status_code == 200
            except httpx.HTTPError:
                time.sleep(0.5)
