"""The engine behind a URL: servers that lack something, that fail, and that serve what they were not asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from loop.core.base import Base
from loop.core.errors import AttestationFailed, UserError
from loop.core.pair import Adapter
from loop.core.plan import Spec
from loop.engines.openai import OpenAIEngine
from loop.engines.shelf import served_name
from loop.plugins import engine as plugged
from loop.remote.endpoint import Endpoint
from loop.store.blobs import FsBlobs
from tests.engines.conformance.conftest import MakeEngine
from tests.engines.conformance.server import NAME, TinyServer
from tests.engines.tiny import Ears, answers, request, save_adapter
from tests.judges.endpoint import Said, Served

WEIGHTS = "adapter_model.safetensors"


def adapters(base: Base, blobs: FsBlobs, folder: Path, count: int) -> list[Adapter]:
    """Adapters that differ in their weights alone."""
    return [save_adapter(base, blobs, folder / str(seed), spread=0.2, seed=seed) for seed in range(count)]


def test_the_engine_is_named_by_its_entry_point() -> None:
    made = plugged(Spec(use="openai", options={"endpoint": {"url": "http://host/v1", "model": "m"}}))
    assert made == OpenAIEngine(endpoint=Endpoint(url="http://host/v1", model="m"))


def test_a_server_that_is_not_there_or_serves_something_else_is_named(
    openai: MakeEngine, served: Served, base: Base, blobs: FsBlobs
) -> None:
    gone = openai(endpoint=Endpoint(url="http://127.0.0.1:9/v1", model=NAME), retries=1)
    with pytest.raises(UserError, match=r"no usable server at http://127.0.0.1:9/v1 \(the connection failed"):
        answers(gone, base, blobs, [request("two?")])
    other = openai(endpoint=Endpoint(url=served.url, model="large"))
    with pytest.raises(UserError, match=r"serves no model 'large', it serves: tiny\."):
        answers(other, base, blobs, [request("two?")])


def test_a_server_without_token_ids_gets_its_text_tokenised_and_no_log_probabilities(
    openai: MakeEngine, tiny_server: TinyServer, base: Base, blobs: FsBlobs
) -> None:
    (whole,), _ = answers(openai(), base, blobs, [request("two?", max_tokens=3)])
    tiny_server.tells_ids, tiny_server.forced_text = False, "abc"
    (plain,), _ = answers(openai(), base, blobs, [request("two?", max_tokens=3)])
    # Byte-level: three special tokens, then the sorted alphabet, which begins with "!" and "abc" is 64 on.
    assert (plain.text, plain.token_ids, plain.logprobs) == ("abc", (67, 68, 69), ())
    assert plain.prompt_ids == whole.prompt_ids and len(whole.logprobs) == len(whole.token_ids) == 3


def test_log_probabilities_that_are_not_of_the_sampling_distribution_are_left_out(
    openai: MakeEngine, base: Base, blobs: FsBlobs
) -> None:
    asked = [request("two?", temperature=t, top_p=p) for t, p in ((0.0, 1.0), (1.0, 1.0), (0.5, 1.0), (1.0, 0.5))]
    found, _ = answers(openai(), base, blobs, asked)
    assert [bool(completion.logprobs) for completion in found] == [True, True, False, False]


def test_cached_tokens_are_the_servers(openai: MakeEngine, base: Base, blobs: FsBlobs) -> None:
    (found,), report = answers(openai(), base, blobs, [request("two?", max_tokens=1)])
    assert found.cached_tokens == report.cached_tokens == 16


def test_a_choice_is_scored_held_or_matched_as_the_server_can(
    openai: MakeEngine, tiny_server: TinyServer, served: Served, base: Base, blobs: FsBlobs
) -> None:
    asked = [request("well?", choices=("yes", "yes please", "no"))]
    (followed,), report = answers(openai(structured="vllm"), base, blobs, asked)
    assert "structured_outputs" not in served.bodies[-1] and report.cached_tokens == 16
    tiny_server.follows = False
    (echoed,), _ = answers(openai(), base, blobs, asked)
    assert echoed.text == followed.text and echoed.token_ids == followed.token_ids
    assert echoed.probabilities == pytest.approx(followed.probabilities, abs=1e-4)
    assert echoed.logprobs == pytest.approx(followed.logprobs, abs=1e-4)
    (held,), _ = answers(openai(structured="vllm"), base, blobs, asked)
    assert (held.text, held.finish, held.probabilities) == ("no", "choice", ())
    assert served.bodies[-1]["structured_outputs"] == {"choice": ["yes", "yes please", "no"]}
    tiny_server.echoes, tiny_server.forced_text = False, " yes please, I would say"
    (matched,), _ = answers(openai(), base, blobs, asked)
    assert (matched.text, matched.finish, matched.probabilities) == ("yes please", "choice", ())
    tiny_server.forced_text = "perhaps"
    completions: list[int] = []
    report = openai().generate(base, blobs, [(7, asked[0])], lambda key, _: completions.append(key) or ())
    assert completions == [] and "none of the choices" in report.failures[7].message


def test_what_a_server_was_seen_not_to_know_is_asked_of_it_once(
    openai: MakeEngine, tiny_server: TinyServer, served: Served, base: Base, blobs: FsBlobs
) -> None:
    tiny_server.follows = False
    asked = [request("well?", choices=("yes", "no"), seed=seed) for seed in range(3)]
    answers(openai(in_flight=1), base, blobs, asked)
    answers(openai(), base, blobs, asked)
    assert sum("logprob_token_ids" in body for body in served.bodies) == 1
    assert sum(body.get("echo", False) for body in served.bodies) == 6


def test_more_options_than_a_server_takes_at_once_are_scored_otherwise_and_the_next_choice_asks_again(
    openai: MakeEngine, tiny_server: TinyServer, served: Served, base: Base, blobs: FsBlobs
) -> None:
    tiny_server.script = {1: Said(status=400)}
    asked = [request("well?", choices=("yes", "no"), seed=seed) for seed in range(2)]
    found, report = answers(openai(in_flight=1), base, blobs, asked)
    assert [len(completion.probabilities) for completion in found] == [2, 2] and not report.failures
    asked_of_it = [body for body in served.bodies if "prompt" in body]
    assert [body.get("echo", False) for body in asked_of_it] == [False, True, False, False]


@pytest.mark.parametrize("top", [None, [], [{}], [{"token_id:1": "x"}], [None], {"content": 1}, [{"a": -9999.0}]])
def test_a_server_that_tells_something_else_than_the_asked_tokens_is_echoed(
    top: object, openai: MakeEngine, tiny_server: TinyServer, base: Base, blobs: FsBlobs
) -> None:
    choice = {"text": "", "finish_reason": "length", "logprobs": {"token_logprobs": [-1.0], "top_logprobs": top}}
    tiny_server.script = {1: Said(body=json.dumps({"model": NAME, "choices": [choice]}))}
    (found,), report = answers(openai(), base, blobs, [request("well?", choices=("yes", "no"))])
    assert len(found.probabilities) == 2 and not report.failures and tiny_server.completions == 2


def test_a_failure_that_passes_is_asked_again_and_a_lasting_one_is_told_while_the_others_go_on(
    openai: MakeEngine, tiny_server: TinyServer, base: Base, blobs: FsBlobs
) -> None:
    tiny_server.script = {1: Said(status=429, headers={"Retry-After": "0"}), 2: Said(status=503)}
    found, report = answers(openai(), base, blobs, [request("two?"), request("three?")])
    assert len(found) == 2 and report.failures == {} and tiny_server.completions == 4
    tiny_server.script = {tiny_server.completions + 2: Said(status=400)}
    keys: list[int] = []
    report = openai(in_flight=1).generate(
        base, blobs, [(key, request("two?", seed=key)) for key in range(3)], lambda key, _: keys.append(key) or ()
    )
    assert keys == [0, 2] and list(report.failures) == [1]
    assert (report.failures[1].boundary, report.failures[1].message.split(": ")[1]) == ("engine", "HTTP 400")


@pytest.mark.parametrize("text", ["", "two, of course"])
def test_a_streamed_reply_is_that_of_one_piece_with_token_ids_or_without(
    text: str, openai: MakeEngine, tiny_server: TinyServer, served: Served, base: Base, blobs: FsBlobs
) -> None:
    tiny_server.tells_ids, tiny_server.forced_text = not text, text
    asked, ears = request("two?", max_tokens=6), Ears()
    whole, _ = answers(openai(), base, blobs, [asked])
    openai().generate(base, blobs, [(0, asked)], ears.follow, ears.hear)
    assert ears.found == {0: whole[0]} and whole[0].cached_tokens == 16
    assert len(set(ears.told[0])) > 2 and whole[0].text.startswith(ears.told[0][-1])
    assert "stream" not in served.bodies[1] and served.bodies[-1]["stream"]


def test_giving_a_request_up_breaks_the_line_to_the_server(
    openai: MakeEngine, tiny_server: TinyServer, served: Served, base: Base, blobs: FsBlobs
) -> None:
    tiny_server.drip = 0.001  # a byte; a token's event has more than 150 of them
    ears = Ears(lambda key, text: text != "")
    report = openai().generate(base, blobs, [(0, request("two?", max_tokens=40))], ears.follow, ears.hear)
    assert report.failures[0].boundary == "cancelled" and served.broken.wait(60)
    assert tiny_server.completions == 1


def test_a_reply_that_breaks_off_after_part_of_it_was_told_is_not_asked_for_again(
    openai: MakeEngine, tiny_server: TinyServer, base: Base, blobs: FsBlobs
) -> None:
    # The first event is there after a second and the last far later than is waited, also on a busy machine.
    tiny_server.drip, ears = 0.005, Ears()
    asked = [(0, request("two?", max_tokens=40))]
    report = openai(timeout=4).generate(base, blobs, asked, ears.follow, ears.hear)
    assert report.failures[0].message.endswith("no answer within 4 s, after part of the reply")
    assert tiny_server.completions == 1


def test_a_server_that_cannot_stream_is_told_of(
    openai: MakeEngine, tiny_server: TinyServer, base: Base, blobs: FsBlobs
) -> None:
    tiny_server.script, ears = {1: Said(body="{}")}, Ears()
    report = openai().generate(base, blobs, [(0, request("two?"))], ears.follow, ears.hear)
    assert report.failures[0].message.endswith("malformed: not a stream of events")


def test_a_server_that_answers_as_another_model_stops_the_call(
    openai: MakeEngine, tiny_server: TinyServer, base: Base, blobs: FsBlobs
) -> None:
    tiny_server.answers_as = "large"
    with pytest.raises(AttestationFailed, match="asked for model 'tiny' and answered as 'large'"):
        answers(openai(), base, blobs, [request("two?")])


def test_a_server_that_reads_another_prompt_stops_the_call(
    openai: MakeEngine, tiny_server: TinyServer, base: Base, blobs: FsBlobs
) -> None:
    tiny_server.tells_ids, tiny_server.adds_tokens = False, 1
    with pytest.raises(UserError, match=r"was sent a prompt of \d+ tokens and read \d+ others"):
        answers(openai(), base, blobs, [request("two?")])


def test_every_revision_is_served_under_a_name_of_its_own_and_answers_differently(
    openai: MakeEngine, served: Served, tiny_server: TinyServer, base: Base, blobs: FsBlobs, tmp_path: Path
) -> None:
    """Peer faults 2 and 3: an adapter loaded again under the old name meets the old cache."""
    first, second = adapters(base, blobs, tmp_path, 2)
    found, _ = answers(openai(), base, blobs, [request("two?", adapter=adapter) for adapter in (first, second)])
    assert tiny_server.loads == [served_name(first), served_name(second)] and len(set(tiny_server.loads)) == 2
    assert all(adapter.digest in name for adapter, name in zip((first, second), tiny_server.loads, strict=True))
    assert found[0].logprobs != found[1].logprobs
    asked = [body["model"] for body in served.bodies if body.get("seed") is not None]
    assert sorted(asked) == sorted(tiny_server.loads)


@pytest.mark.parametrize("follows", [True, False])
@pytest.mark.parametrize("fault", ["ignores_adapters", "keeps_first_adapter"])
def test_weights_that_did_not_arrive_are_refused_and_nothing_is_sampled(
    fault: str, follows: bool, openai: MakeEngine, tiny_server: TinyServer, base: Base, blobs: FsBlobs, tmp_path: Path
) -> None:
    """Peer faults 1 and 2: the server goes on with the bare base, or with the first adapter."""
    first, second = adapters(base, blobs, tmp_path, 2)
    setattr(tiny_server, fault, True)
    tiny_server.follows = follows
    if fault == "keeps_first_adapter":
        answers(openai(), base, blobs, [request("two?", adapter=first)])
    before = tiny_server.completions
    with pytest.raises(AttestationFailed, match="its served probe is .* from the trainer's"):
        answers(openai(), base, blobs, [request("two?", adapter=second)])
    # The probe under both names, asked for in two ways where the first is not known, and no more.
    assert tiny_server.completions == before + (2 if follows else 4)
    assert tiny_server.unloads == [served_name(second)]


def test_keys_that_bind_to_nothing_are_refused(openai: MakeEngine, base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    """Peer fault 17: keys of another library, which the server's loader only warns of."""

    def renamed(folder: Path) -> None:
        tensors = load_file(str(folder / WEIGHTS))
        save_file({key.replace("self_attn", "attention"): t for key, t in tensors.items()}, str(folder / WEIGHTS))

    adapter = save_adapter(base, blobs, tmp_path, spread=0.2, edit=renamed)
    with pytest.raises(AttestationFailed, match="its served probe is .* from the trainer's"):
        openai().attest(base, blobs, adapter)


def test_the_served_base_is_the_same_after_adapters_came_and_went(
    openai: MakeEngine, tiny_server: TinyServer, base: Base, blobs: FsBlobs, tmp_path: Path
) -> None:
    """Peer fault 16: merging in place drifts; and the least recently used adapter makes room."""
    made = adapters(base, blobs, tmp_path, 3)
    before, _ = answers(openai(), base, blobs, [request("two?")])
    for adapter in (made[0], made[1], made[0], made[2], made[0]):
        answers(openai(most_adapters=2), base, blobs, [request("two?", adapter=adapter, max_tokens=2)])
    assert tiny_server.loads == [served_name(adapter) for adapter in made]
    assert tiny_server.unloads == [served_name(made[1])]
    assert answers(openai(), base, blobs, [request("two?")])[0] == before


def test_a_server_that_gives_the_base_an_adapters_change_is_refused_or_asked_for_one_that_changes_nothing(
    openai: MakeEngine, tiny_server: TinyServer, base: Base, blobs: FsBlobs, tmp_path: Path
) -> None:
    """vLLM's CPU build takes index -1 as the last adapter (vllm#48421)."""
    made = adapters(base, blobs, tmp_path, 2)
    before, _ = answers(openai(), base, blobs, [request("two?", seed=3)])
    tiny_server.gives_base_last_adapter = True
    with pytest.raises(AttestationFailed, match="the served base's probe is .* so it is another model"):
        openai().attest(base, blobs, made[0])
    apart = openai(mixes_base=False)
    for adapter in made:
        assert apart.attest(base, blobs, adapter).probe_difference < 1e-3
    assert answers(apart, base, blobs, [request("two?", seed=3)])[0] == before
    assert len(set(tiny_server.loads)) == 3
    # A server that was started again has lost it, and needs it no more.
    for name in tiny_server.loads:
        tiny_server.models.pop(name, None)
    assert answers(apart, base, blobs, [request("two?", seed=3)])[0] == before
    (changed,), _ = answers(apart, base, blobs, [request("two?", seed=3, adapter=made[0])])
    assert answers(apart, base, blobs, [request("two?", seed=3)])[0] == before and changed != before[0]


def test_a_base_with_other_weights_is_refused(
    openai: MakeEngine, tiny_server: TinyServer, base: Base, blobs: FsBlobs, tmp_path: Path
) -> None:
    (adapter,) = adapters(base, blobs, tmp_path, 1)
    weights = tiny_server.models[NAME].get_input_embeddings().weight
    weights.data.copy_(weights.data.flip(0))
    with pytest.raises(AttestationFailed, match="the served base's probe is .* so it is another model"):
        openai().attest(base, blobs, adapter)


def test_an_adapter_that_a_restarted_server_lost_is_loaded_and_attested_again(
    openai: MakeEngine, tiny_server: TinyServer, base: Base, blobs: FsBlobs, tmp_path: Path
) -> None:
    (adapter,) = adapters(base, blobs, tmp_path, 1)
    first, _ = answers(openai(), base, blobs, [request("two?", adapter=adapter)])
    del tiny_server.models[served_name(adapter)]
    again, _ = answers(openai(), base, blobs, [request("two?", adapter=adapter)])
    assert first == again and tiny_server.loads == [served_name(adapter)] * 2


def test_a_server_that_loads_no_adapters_is_told_how_to(
    openai: MakeEngine, tiny_server: TinyServer, base: Base, blobs: FsBlobs, tmp_path: Path
) -> None:
    (adapter,) = adapters(base, blobs, tmp_path, 1)
    tiny_server.loads_adapters = False
    with pytest.raises(UserError, match="--enable-lora"):
        answers(openai(), base, blobs, [request("two?", adapter=adapter)])
    with pytest.raises(UserError, match="lora = 'none'"):
        answers(openai(lora="none"), base, blobs, [request("two?", adapter=adapter)])
