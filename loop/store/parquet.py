"""Shards and training sets as Parquet: one row per episode, score or reply, exact to the bit.

Fields that people filter and plot by are typed columns; what is left of a row is JSON in
``rest``, so that a field added to a noun later is carried without a new layout. Columns
in ``index`` are copies for readers (pandas, DuckDB) and are not read back.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq

from loop.core.episode import Episode, EpisodeShard
from loop.core.noun import Noun
from loop.core.score import CaseScore, ScoreShard
from loop.core.training_set import TrainingSet
from loop.store.document import from_bytes, plain, to_bytes, to_json

NounT = TypeVar("NounT", bound=Noun)
Fields = dict[str, Any]

_TOKENS = pa.list_(pa.int64())
_TURN: Fields = {
    "role": pa.string(),
    "content": pa.string(),
    "label": pa.string(),
    "adapter": pa.string(),
    "prompt_ids": _TOKENS,
    "token_ids": _TOKENS,
    "logprobs": pa.list_(pa.float64()),
    "finish": pa.string(),
}
_VERDICT: Fields = {
    "criterion": pa.string(),
    "axiom": pa.string(),
    "pole": pa.string(),
    "weight": pa.float64(),
    "veto": pa.bool_(),
    "half": pa.string(),
    "value": pa.float64(),
    "evidence": pa.string(),
    "judge": pa.string(),
}
_TASK_INDEX: Fields = {
    "environment": pa.string(),
    "case": pa.string(),
    "split": pa.string(),
    "level": pa.int64(),
}


def _task_index(item: Any) -> Fields:
    return {name: getattr(item.task, name) for name in _TASK_INDEX}


def _episode_index(episode: Episode) -> Fields:
    failure = episode.failure
    return {"digest": episode.digest, **_task_index(episode), "boundary": failure.boundary if failure else None}


def _score_index(score: CaseScore) -> Fields:
    return _task_index(score)


@dataclass(frozen=True)
class Layout:
    """How a noun that holds many rows is laid out: typed columns, nested lists, copies for readers."""

    rows: str
    columns: Fields
    nested: dict[str, Fields] = field(default_factory=dict)
    index: Fields = field(default_factory=dict)
    indexed: Callable[[Any], Fields] = lambda item: {}

    @property
    def schema(self) -> Any:
        """The Arrow schema, without metadata."""
        lists = {
            name: pa.list_(pa.struct(list({**fields, "rest": pa.string()}.items())))
            for name, fields in self.nested.items()
        }
        return pa.schema(list({**self.index, **self.columns, **lists, "rest": pa.string()}.items()))

    def write_row(self, item: Noun) -> Fields:
        """One Arrow row of an item."""
        fields = plain(item)
        lists = {name: [_split(entry, inner) for entry in fields.pop(name)] for name, inner in self.nested.items()}
        return self.indexed(item) | _split(fields, self.columns) | lists

    def read_row(self, row: Fields) -> Fields:
        """The item's fields back from an Arrow row."""
        lists = {name: [_join(entry, inner) for entry in row[name]] for name, inner in self.nested.items()}
        return _join(row, self.columns) | lists


LAYOUTS: dict[type[Noun], Layout] = {
    EpisodeShard: Layout(
        rows="episodes",
        columns={"pair": pa.string(), "sample": pa.int64(), "seconds": pa.float64()},
        nested={"turns": _TURN},
        index={"digest": pa.string(), **_TASK_INDEX, "boundary": pa.string()},
        indexed=_episode_index,
    ),
    ScoreShard: Layout(
        rows="scores",
        columns={"episode": pa.string(), "sample": pa.int64(), "score": pa.float64(), "passed": pa.bool_()},
        nested={"verdicts": _VERDICT},
        index=_TASK_INDEX,
        indexed=_score_index,
    ),
    TrainingSet: Layout(
        rows="rows",
        columns={
            "episode": pa.string(),
            "task": pa.string(),
            "split": pa.string(),
            "environment": pa.string(),
            "case": pa.string(),
            "level": pa.int64(),
            "turn": pa.int64(),
            "generation": pa.int64(),
            "licence": pa.string(),
            "weight": pa.float64(),
            "score": pa.float64(),
            "prompt_ids": _TOKENS,
            "response_ids": _TOKENS,
            "text": pa.string(),
            "request": pa.string(),
        },
    ),
}


def encode(noun: Noun) -> bytes:
    """The stored form of a noun: Parquet (zstd) for shards and training sets, JSON for the others.

    Equal nouns give equal bytes, in any process.
    """
    layout = LAYOUTS.get(type(noun))
    if layout is None:
        return to_bytes(noun)
    items = cast("tuple[Noun, ...]", getattr(noun, layout.rows))
    header = {name: plain(getattr(noun, name)) for name in type(noun).model_fields if name != layout.rows}
    metadata = {"noun": type(noun).__name__, "header": to_json(header)}
    schema = layout.schema.with_metadata(metadata)
    table = pa.Table.from_pylist([layout.write_row(item) for item in items], schema=schema)
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", use_dictionary=True, write_statistics=True)
    return sink.getvalue()


def decode(kind: type[NounT], data: bytes) -> NounT:
    """Read ``encode`` back; ValueError when the bytes hold another class or do not fit it."""
    layout = LAYOUTS.get(kind)
    if layout is None:
        return from_bytes(kind, data)
    table = pq.read_table(pa.BufferReader(data))
    metadata = table.schema.metadata or {}
    if metadata.get(b"noun") != kind.__name__.encode():
        raise ValueError(f"expected the Parquet of a {kind.__name__}")
    fields = json.loads(metadata[b"header"])
    rows = [layout.read_row(row) for row in table.to_pylist()]
    return kind.model_validate(fields | {layout.rows: rows})


def _split(fields: Fields, columns: Fields) -> Fields:
    rest = {name: value for name, value in fields.items() if name not in columns}
    return {name: fields[name] for name in columns} | {"rest": to_json(rest)}


def _join(row: Fields, columns: Fields) -> Fields:
    rest: Fields = json.loads(row["rest"])
    return {name: row[name] for name in columns} | rest
