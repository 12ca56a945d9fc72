"""How much the kit saves, and what it costs: ratios, measured in one run on the real vLLM for the CPU.

(a) the sweep against a plain loop of `papermill` over the same notebooks, each with an engine of its own;
(b) a notebook through the kit against the same calls in a bare httpx script, with an engine that is up already;
(c) how many engines each of the two in (a) has started.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from reproducers import Engine, open_engine
from reproducers.catalog import catalog, notebooks_folder

BUGS = [name for name, bug in catalog().items() if not bug.memory and "cpu" not in bug.own_engines]
"""Those of one configuration: a notebook that needs an engine of another kind has nothing to share."""
PARAMETERS = {"patience_s": 1.0, "repeats": 1}
RELEASE = "0.32.0"


def timed(command: list[str], environment: dict[str, str] | None = None) -> float:
    """Seconds that a command took, which must not end with a usage or harness error."""
    began = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode in {2, 3}:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-500:]}")
    return time.monotonic() - began


def tool(name: str) -> str:
    """A command of this environment."""
    return str(Path(sys.executable).with_name(name))


def by_sweep(folder: Path) -> tuple[float, int, dict[str, str]]:
    """Seconds, engine starts and verdicts of the sweep."""
    lines = [f"bugs = {json.dumps(BUGS)}", f'releases = ["{RELEASE}"]', "[parameters]"]
    lines += [f"{name} = {value}" for name, value in PARAMETERS.items()]
    matrix = folder / "matrix.toml"
    matrix.write_text("\n".join(lines), encoding="utf-8")
    took = timed([tool("repro"), "sweep", "--matrix", str(matrix), "--out", str(folder / "sweep")])
    data = json.loads((folder / "sweep" / "results.json").read_text(encoding="utf-8"))
    return took, data["engine_starts"], {row["bug"]: next(iter(row["verdicts"])) for row in data["rows"]}


def by_loop(folder: Path) -> tuple[float, int, dict[str, str]]:
    """The same of a plain loop of papermill."""
    took, verdicts = 0.0, {}
    for name in BUGS:
        notebook, record = notebooks_folder() / catalog()[name].notebook, folder / f"{name}.ipynb"
        text = notebook.read_text(encoding="utf-8")
        given = {n: v for n, v in (PARAMETERS | {"engine": "cpu", "require": "nothing"}).items() if f"{n}:" in text}
        options = [part for n, v in given.items() for part in ("-p", n, str(v))]
        command = [tool("papermill"), "--engine", "reproducers", "--no-progress-bar", *options]
        took += timed([*command, str(notebook), str(record)])
        said = json.loads(record.read_text(encoding="utf-8"))["metadata"]["reproducers"]
        verdicts[name] = said["verdict"]["verdict"]
        print(f"    loop: {name} {verdicts[name]}, {took:.0f} s so far", flush=True)
    return took, len(BUGS), verdicts


def bare(engine: Engine) -> float:
    """Seconds that the calls of #45326 take in a bare script."""
    began = time.monotonic()
    body = {"model": engine.model, "prompt": "The engine sleeps and", "max_tokens": 16, "temperature": 0, "logprobs": 1}
    with httpx.Client(base_url=engine.url, timeout=60) as client:
        for _ in range(2):
            client.post("/v1/completions", json=body).raise_for_status()
        client.post("/sleep", params={"level": 1}).raise_for_status()
        with contextlib.suppress(httpx.ReadTimeout):
            client.post("/v1/completions", json=body, timeout=PARAMETERS["patience_s"])
        client.post("/wake_up").raise_for_status()
        client.post("/v1/completions", json=body).raise_for_status()
    return time.monotonic() - began


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="repro-bench-") as name:
        folder = Path(name)
        print("(a) the sweep, then the loop", flush=True)
        sweep_s, sweep_starts, swept = by_sweep(folder)
        print(f"    sweep: {sweep_s:.0f} s", flush=True)
        loop_s, loop_starts, looped = by_loop(folder)
        print("(b) one notebook, with an engine that is up", flush=True)
        engine = open_engine("cpu", progress=lambda _: None)
        try:
            bare(engine)
            pairs = []
            for i in range(3):
                out = ["--out", str(folder / f"attached-{i}.ipynb")]
                given = ["-p", f"patience_s={PARAMETERS['patience_s']}", "-p", "require=nothing"]
                kit = timed([tool("repro"), "run", "45326", "--engine", engine.url, *out, *given], dict(os.environ))
                pairs.append((kit, bare(engine)))
        finally:
            engine.close()
    over = sorted(kit - script for kit, script in pairs)[1]
    same = "the same verdicts" if swept == looped else f"other verdicts: {swept} and {looped}"
    print(f"(a) sweep {sweep_s:.0f} s, loop {loop_s:.0f} s: {sweep_s / loop_s:.2f} of the time, {same}")
    print(f"(b) kit over bare script: {over:.1f} s a notebook (median of 3; kit {pairs[-1][0]:.1f} s)")
    print(f"(c) engine starts: sweep {sweep_starts}, loop {loop_starts}")
    sys.exit(0 if swept == looped else 1)


if __name__ == "__main__":
    main()
