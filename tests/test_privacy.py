"""What must not leave a machine, and what looks like it but may."""

import socket

import pytest

from reproducers.privacy import findings, mask, mask_text


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("GET http://127.0.0.1:43211/health", "GET http://127.0.0.1:PORT/health"),
        ("at localhost:8000.", "at localhost:PORT."),
        ("http://me:word@example.org/x", "http://[masked]example.org/x"),
        ("Authorization: Bearer abc.def-ghi_jkl", "Authorization: [masked]"),
        ("token hf_abcdefghijklmnopqrst", "token [masked]"),
        ("key sk-abcdefghijklmnopqrst", "key [masked]"),
        (
            'File "/home/ann/env/lib/python3.11/site-packages/vllm/v1/core.py", line 3',
            'File "site-packages/vllm/v1/core.py", line 3',
        ),
        ("the model /root/.cache/x/tiny-qwen3", "the model tiny-qwen3"),
        ("init file:///tmp/3f2a-9c", "init file://3f2a-9c"),
        ("made 2026-01-02T03:04:05.678Z", "made [time]"),
        ('{"created":1795982625,"model":"m"}', '{"created":[time],"model":"m"}'),
    ],
)
def test_it_is_masked(text: str, masked: str) -> None:
    assert mask_text(text) == masked
    assert findings([text])
    assert findings([masked]) == []


@pytest.mark.parametrize(
    "text",
    [
        "POST /v1/completions → 200",
        "GET /is_sleeping",
        "max_tokens=16, token_id:335, vLLM 0.32.0, torch 2.13.0+cpu",
        "cmpl-8cd940e06ab26dfe",
        "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "https://github.com/vllm-project/vllm/issues/45326",
        "</details>",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert mask_text(text) == text
    assert findings([text]) == []


def test_the_name_of_this_machine_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-node-17")
    assert mask_text("on gpu-node-17 it hangs") == "on [name] it hangs"


def test_the_host_of_a_server_that_was_attached_to_is_masked_unless_it_is_this_machine() -> None:
    assert mask(["http://gpu-7.corp:8000/health"], "gpu-7.corp:8000") == ["http://HOST:PORT/health"]
    assert mask(["http://127.0.0.1:8000/health"], "127.0.0.1:8000") == ["http://127.0.0.1:PORT/health"]


def test_pictures_are_left_alone_and_everything_else_is_reached() -> None:
    data = {"a": ["127.0.0.1:1234", {"image/png": "/root/x"}], "n": 3}
    assert mask(data) == {"a": ["127.0.0.1:PORT", {"image/png": "/root/x"}], "n": 3}
