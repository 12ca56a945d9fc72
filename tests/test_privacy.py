"""What must not leave a machine, and what looks like it but may."""

import socket
from collections import Counter

import pytest
from planted import ORDINARY, PLANTED

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


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert mask_text(text) == text
    assert findings([text]) == []


@pytest.mark.parametrize(("text", "secret"), PLANTED, ids=[text[:24] for text, _ in PLANTED])
@pytest.mark.parametrize("around", ["{}", "File: {}\n  next line", '{{"said": "{}"}}', "| {} |"])
def test_a_secret_or_a_personal_detail_is_masked_wherever_it_stands(text: str, secret: str, around: str) -> None:
    told = around.format(text)
    masked = mask_text(told)
    assert secret not in masked
    assert findings([told])
    assert findings([masked]) == []


def test_what_was_masked_is_counted_by_kind_and_not_shown() -> None:
    masked: Counter[str] = Counter()
    mask(["127.0.0.1:1234", {"a": "hf_abcdefghijklmnopqrst and hf_abcdefghijklmnopqrsu"}], masked=masked)
    assert masked == {"a port": 1, "a secret": 2}


def test_the_values_of_secret_variables_of_this_process_are_masked_wherever_they_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_TOKEN", "correct-horse-battery")
    monkeypatch.setenv("LOGNAME", "adalovelace")
    assert mask_text("it said correct-horse-battery to adalovelace") == "it said [masked] to [name]"


def test_the_name_of_this_machine_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-node-17")
    assert mask_text("on gpu-node-17 it hangs") == "on [name] it hangs"


def test_the_host_of_a_server_that_was_attached_to_is_masked_unless_it_is_this_machine() -> None:
    assert mask(["http://gpu-7.corp:8000/health"], "gpu-7.corp:8000") == ["http://HOST:PORT/health"]
    assert mask(["http://127.0.0.1:8000/health"], "127.0.0.1:8000") == ["http://127.0.0.1:PORT/health"]


def test_pictures_are_left_alone_and_everything_else_is_reached() -> None:
    data = {"a": ["127.0.0.1:1234", {"image/png": "/root/x"}], "n": 3}
    assert mask(data) == {"a": ["127.0.0.1:PORT", {"image/png": "/root/x"}], "n": 3}
