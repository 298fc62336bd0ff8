"""The vLLM engine: against the real server where it is installed, and what it says where it is not."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import pytest
from peft import PeftModel

from loop.core.base import Base
from loop.core.errors import AttestationFailed, UserError
from loop.engines.install import Build, install_vllm
from loop.engines.vllm import VllmEngine
from loop.ports import Engine
from loop.store.blobs import FsBlobs
from tests.engines.test_transformers import generated, ids_of, token_logprobs
from tests.engines.tiny import answers, reference_model, request, save_adapter
from tests.engines.vllm_server import needs_vllm, tiny_vllm

TEXTS = ("two?", "a longer question, with more words?")


@pytest.fixture
def engine() -> Engine:
    return tiny_vllm()


def test_an_engine_that_is_not_installed_says_how_to(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="engine install vllm"):
        answers(VllmEngine(environment=str(tmp_path)), base, blobs, [request("two?")])


def test_a_program_that_ends_at_once_is_told_with_its_last_words(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("vllm", "python"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\necho no room for $*; exit 3\n")
        (tmp_path / "bin" / name).chmod(0o755)
    with pytest.raises(UserError, match=r"vLLM did not start: .* status 3(.|\n)*no room for -m vllm.*--enable-lora"):
        answers(VllmEngine(environment=str(tmp_path)), base, blobs, [request("two?")])


FRAIL = """#!{python}
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1]))) as server:
    server.accept()
print("out of luck")
sys.exit(3)
"""


def test_a_server_that_ended_is_started_again_until_it_ends_too_often(
    base: Base, blobs: FsBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("vllm", "python"):
        (tmp_path / "bin" / name).write_text(FRAIL.format(python=sys.executable))
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setattr("loop.engines.vllm.MOST_STARTS", 2)
    engine, deadline = VllmEngine(environment=str(tmp_path)), time.monotonic() + 60

    def ask_until_refused() -> None:
        while time.monotonic() < deadline:
            answers(engine, base, blobs, [])
            time.sleep(0.05)

    with pytest.raises(UserError, match="vLLM ended 2 times, the last time with:\nout of luck"):
        ask_until_refused()
    (warning,) = caplog.messages
    assert warning == "vLLM ended and is started again; its last words:\nout of luck"


def test_an_installation_that_fails_is_one_sentence(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho first >&2; echo 'no such index' >&2; exit 1\n")
    python.chmod(0o755)
    with pytest.raises(UserError, match=r"vLLM: it could not be installed \(no such index\); check the network"):
        install_vllm(tmp_path, Build.CPU)


@pytest.mark.vllm
@needs_vllm
def test_a_real_server_answers_as_transformers_does(engine: Engine, wide: Base, blobs: FsBlobs) -> None:
    model = reference_model(wide, blobs)
    found, report = answers(engine, wide, blobs, [request(text) for text in TEXTS])
    for completion in found:
        assert list(completion.token_ids) == generated(model, completion, 12)
        expected = token_logprobs(model, completion.prompt_ids, completion.token_ids)
        assert completion.logprobs == pytest.approx(expected, abs=2e-3)
    assert report.failures == {}
    drawn = [request("two?", temperature=0.8, seed=seed) for seed in (1, 2, 1)]
    found, _ = answers(engine, wide, blobs, drawn)
    for completion in found:
        expected = token_logprobs(model, completion.prompt_ids, completion.token_ids, 0.8)
        assert completion.logprobs == pytest.approx(expected, abs=2e-3)
    assert found[0].token_ids == found[2].token_ids != found[1].token_ids


@pytest.mark.vllm
@needs_vllm
def test_a_real_server_takes_more_prompts_than_one_step_reads(engine: Engine, wide: Base, blobs: FsBlobs) -> None:
    """vLLM's CPU build ended where a prompt with a seed was read in parts."""
    texts = [f"{number} {'x' * 350}" for number in range(48)]
    drawn = [request(text, temperature=1.0, seed=seed, max_tokens=2) for seed, text in enumerate(texts)]
    found, report = answers(engine, wide, blobs, drawn)
    assert len(found) == len(texts) and report.failures == {}


@pytest.mark.vllm
@needs_vllm
def test_a_real_server_holds_a_reply_to_the_choices(engine: Engine, wide: Base, blobs: FsBlobs) -> None:
    choices = ("yes", "yes please", "no")
    asked = [request("well?", choices=choices, temperature=1.0, seed=seed) for seed in range(4)]
    model = reference_model(wide, blobs)
    for completion in answers(engine, wide, blobs, asked)[0]:
        assert completion.text in choices and completion.finish == "choice"
        assert list(completion.token_ids) == [*ids_of(wide, blobs, completion.text), 2]
        scored = [token_logprobs(model, completion.prompt_ids, [*ids_of(wide, blobs, text), 2]) for text in choices]
        weights = [math.exp(math.fsum(values)) for values in scored]
        expected = [weight / math.fsum(weights) for weight in weights]
        assert completion.probabilities == pytest.approx(expected, abs=2e-3)
        assert completion.logprobs == pytest.approx(scored[choices.index(completion.text)], abs=2e-3)


@pytest.mark.vllm
@needs_vllm
def test_a_real_server_serves_attested_adapters(engine: Engine, wide: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    made = [save_adapter(wide, blobs, tmp_path / str(seed), spread=0.2, seed=seed) for seed in range(3)]
    before, _ = answers(engine, wide, blobs, [request("two?")])
    for adapter in (*made, made[0]):
        found = engine.attest(wide, blobs, adapter)
        assert found.ok and found.base_difference > 0.1
        (completion,), _ = answers(engine, wide, blobs, [request("two?", adapter=adapter)])
        model = PeftModel.from_pretrained(reference_model(wide, blobs), str(blobs.get_tree(adapter.blob))).eval()
        expected = token_logprobs(model, completion.prompt_ids, completion.token_ids)
        assert completion.logprobs == pytest.approx(expected, abs=5e-3)
    assert answers(engine, wide, blobs, [request("two?")])[0][0].token_ids == before[0].token_ids
    wrong = save_adapter(wide, blobs, tmp_path / "wrong", spread=0.2, seed=9)
    probe = (blobs.get_tree(made[0].blob) / "probe.json").read_text()
    stale = save_adapter(
        wide,
        blobs,
        tmp_path / "stale",
        spread=0.2,
        seed=9,
        edit=lambda f: (f / "probe.json").write_text(probe) and None,
    )
    assert engine.attest(wide, blobs, wrong).ok
    with pytest.raises(AttestationFailed, match="from the trainer's"):
        engine.attest(wide, blobs, stale)
