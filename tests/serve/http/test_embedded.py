"""The command itself on the embedded model: a tool conversation that outlives the server it began with."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from loop.app import open_harness, open_store
from loop.core.base import Base
from loop.core.pair import Pair
from loop.settings import Settings
from loop.store.blobs import FsBlobs
from tests.engines.conftest import embedded
from tests.store import lineage

__all__ = ["embedded"]

STATUS = {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}
ASKED: Any = {"role": "user", "content": "Please check the status of order 4815."}


@contextmanager
def command(home: Path, blobs: str) -> Iterator[str]:
    """``macaron-loop serve`` until SIGTERM, which it must take as a wish to end well; gives its address."""
    variables = {"MACARON_HOME": str(home), "MACARON_BLOBS_URL": blobs, "MACARON_TRACKING_URI": "off"}
    started = [str(Path(sys.executable).parent / "macaron-loop"), "serve", "--port", "0", "--drain", "20"]
    with subprocess.Popen(
        started, env=os.environ | variables, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"http://\S+", said)
        try:
            assert found, said
            yield found.group()
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0 and "Traceback" not in errors, errors


@pytest.mark.model
def test_clients_go_on_with_a_tool_conversation_after_the_server_was_started_again(
    embedded: tuple[Base, FsBlobs], tmp_path: Path
) -> None:
    base, blobs = embedded
    settings = Settings(home=tmp_path)
    pair = Pair(base=base, adapters=(), harness=open_harness(settings))
    open_store(settings).register(lineage.root(settings.family).revise(pair=pair), None)
    with command(tmp_path, blobs.url) as url:
        chat = openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=300, max_retries=9)
        function = {"name": "order_status", "parameters": STATUS}
        tools: Any = [{"type": "function", "function": function}]
        asked: Any = {"model": "macaron:L1", "tools": tools, "stream": True, "stream_options": {"include_usage": True}}
        chunks = list(chat.chat.completions.create(messages=[ASKED], **asked))
        calls = [call for chunk in chunks for choice in chunk.choices for call in choice.delta.tool_calls or ()]
        assert [json.loads(call.function.arguments) for call in calls] == [{"order": 4815}]
        assert chunks[-1].usage.completion_tokens > 0
    with command(tmp_path, blobs.url) as url:
        use = {"type": "tool_use", "id": calls[0].id, "name": "order_status", "input": {"order": 4815}}
        result = {"type": "tool_result", "tool_use_id": calls[0].id, "content": '{"status": "packed"}'}
        messages: Any = [ASKED, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        other = anthropic.Anthropic(base_url=url, api_key="none", timeout=300, max_retries=9)
        with other.messages.stream(model="macaron", max_tokens=32, messages=messages) as stream:
            told = "".join(stream.text_stream)
            last: Any = stream.get_final_message()
        assert told and told == last.content[0].text
        assert last.usage.cache_read_input_tokens > 0 or last.usage.input_tokens > 0
    entries = _entries(settings)
    assert [(number, kind, label) for number, kind, label in entries] == [
        (1, "reply", "L1"),
        (1, "tool", ""),
        (1, "reply", "L1"),
    ]


def _entries(settings: Settings) -> list[tuple[int, str, str]]:
    """The replies and results of the only conversation, as its last turn has them."""
    from sqlmodel import col, select

    from loop.store.conversation_tables import ExchangeRow
    from loop.store.conversations import SqlConversations
    from loop.store.database import reading

    with reading(settings.database) as session:
        last = session.exec(select(ExchangeRow).order_by(col(ExchangeRow.number).desc())).first()
        assert last is not None
        timeline = SqlConversations(settings.database).timeline(last.owner, last.id)
    return [(e.turn, e.kind.value, e.label) for e in timeline.entries if e.kind.value in ("reply", "tool")]
