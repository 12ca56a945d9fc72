"""Which processor it is, from what Linux and collect_env say."""

from pathlib import Path

import pytest

from reproducers import processor as module
from reproducers.doctor import findings
from reproducers.processor import FEATURES, Processor, named_in, processor

# As an Intel Xeon has it, shortened.
CPUINFO = """processor\t: 0
model name\t: Intel(R) Xeon(R)  Processor
flags\t\t: fpu vme avx2 avx512f avx512_bf16 amx_tile
"""
COLLECT_ENV = """
                                   CPU Info
Architecture:                            x86_64
Model name:                              AMD EPYC 9R14
Flags:                                   fpu avx2 avx512f avx512_bf16
"""


def test_model_and_features_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: CPUINFO)
    found = processor()
    assert (found.model, found.features) == ("Intel(R) Xeon(R) Processor", ("avx512f", "avx512_bf16", "amx_tile"))
    assert str(found) == "Intel(R) Xeon(R) Processor, avx512f, avx512_bf16, amx_tile"
    assert found.cores >= 1
    assert Processor.from_json(found.to_json()) == found


def test_an_older_record_is_read_by_its_environment() -> None:
    assert str(named_in(COLLECT_ENV)) == "AMD EPYC 9R14, avx512f, avx512_bf16"
    assert named_in("PyTorch version: 2.13.0") is None


def test_where_linux_says_nothing_it_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert str(processor()) == "unknown"


@pytest.mark.parametrize("features", [(), tuple(FEATURES)])
def test_the_doctor_says_what_follows_from_it(features: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reproducers.doctor.processor", lambda: Processor("Xeon", 2, features))
    (found,) = [finding for finding in findings() if finding.what == "processor"]
    assert found.here.startswith("Xeon")
    assert ("tiles" in found.so) is bool(features)
    assert "packs" in found.so
    assert module.FEATURES is FEATURES
