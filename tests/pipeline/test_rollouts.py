"""Playing episodes: what is recorded of a conversation, and by which adapter."""

from __future__ import annotations

from loop.core.episode import EpisodeShard, Split
from loop.core.hop import Hop
from loop.pipeline.experience import generated
from loop.pipeline.rollouts import PlayJob, play
from loop.store.blobs import FsBlobs
from loop.store.parquet import decode, encode
from tests import fakes


def _job(**changes: object) -> PlayJob:
    environment = fakes.TwoTurns()
    parts: dict[str, object] = {
        "engine": fakes.ScriptedEngine(),
        "blobs": FsBlobs(url="memory://rollouts"),
        "environments": (environment,),
        "contract": fakes.contract(),
        "pairs": (fakes.pair(),),
        "tasks": environment.tasks(fakes.contract(), Split.TRAIN, 3, 5, (1,)),
        "samples": 2,
        "temperature": 0.7,
        "seed": 1,
    }
    return PlayJob(**(parts | changes))  # type: ignore[arg-type]


def test_an_episode_holds_its_turns_once_and_in_order() -> None:
    episode = play(_job()).episodes[0]
    assert [turn.role for turn in episode.turns] == ["user", "assistant", "user", "assistant"]
    assert episode.turns[2].content == "again"
    assert all(turn.token_ids and turn.logprobs for turn in episode.turns if turn.role == "assistant")


def test_every_reply_records_the_digest_of_the_adapter_that_gave_it() -> None:
    job = _job()
    digests = {turn.adapter for e in play(job).episodes for turn in e.turns if turn.role == "assistant"}
    assert digests == {job.pairs[0].adapters[0].digest}


def test_the_ledger_has_a_line_for_each_reply_and_is_summed_for_the_generation() -> None:
    job = _job()
    shard = play(job)
    for episode in shard.episodes:
        replies = [turn for turn in episode.turns if turn.role == "assistant"]
        told = [(h.hop, h.label, h.adapter, h.prompt_tokens, h.generated_tokens) for h in episode.hops]
        assert told == [(t.hop, t.label, t.adapter, len(t.prompt_ids), len(t.token_ids)) for t in replies]
        assert all(record.seconds >= 0 for record in episode.hops)
        assert episode.revise(hops=()).digest == episode.digest
    # Six episodes of two answers, each of two tokens.
    found = generated(shard).hops
    assert list(found) == [Hop.ANSWER] and (found[Hop.ANSWER].hops, found[Hop.ANSWER].generated_tokens) == (12, 24)
    assert decode(EpisodeShard, encode(shard)) == shard


def test_the_same_job_gives_the_same_shard_and_samples_differ_by_seed() -> None:
    assert play(_job()).digest == play(_job()).digest
    seeds = [episode.seed for episode in play(_job()).episodes]
    assert len(set(seeds)) == len(seeds) == 6


def test_two_pairs_meet_the_same_tasks_with_the_same_seeds() -> None:
    pair = fakes.pair()
    other = pair.revise(harness=pair.harness.revise(name="other"))
    episodes = play(_job(pairs=(pair, other))).episodes
    ours = [(e.task.digest, e.seed) for e in episodes if e.pair == pair.digest]
    theirs = [(e.task.digest, e.seed) for e in episodes if e.pair == other.digest]
    assert ours == theirs and len(ours) == 6


def test_a_rollout_that_raises_is_a_failure_at_its_boundary() -> None:
    episodes = play(_job(environments=(fakes.TwoTurns(broken_share=1.0),))).episodes
    assert all(e.failure is not None and e.failure.boundary == "twice" for e in episodes)
    assert all("no sandbox" in e.failure.message for e in episodes if e.failure)
