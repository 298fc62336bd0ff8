"""Requests made from the server's own description, fitting and unfitting: each is answered, and in its protocol's form.

``FUZZ_CASES=2400 pytest tests/serve/http/test_fuzz.py -s`` makes more than 2,000, and prints what they came to.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from tests.serve.http.started import engine, turns, url

__all__ = ["engine", "turns", "url"]

CASES = int(os.environ.get("FUZZ_CASES", "80"))
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)


@pytest.mark.timeout(60 + 3 * CASES)
def test_every_request_is_answered_in_form(url: str) -> None:
    document = httpx2.get(f"{url}/openapi.json").json()
    schema = schemathesis.openapi.from_dict(document)
    operations = [result.ok() for result in schema.get_all_operations()]
    share = max(1, round(CASES / len(operations) / len(MODES)))
    seen: Counter[tuple[str, str, int]] = Counter()
    for operation in operations:
        documented = {int(status) for status in document["paths"][operation.path][operation.method]["responses"]}
        for mode in MODES:
            _answered(url, operation, mode, share, documented, seen)
    for (label, kind, status), count in sorted(seen.items()):
        print(f"{label} {kind} {status}: {count}")
    print(f"{seen.total()} requests")
    assert seen.total() >= len(operations)
    assert httpx2.get(f"{url}/health").json() == {"status": "ready"}


def _answered(
    url: str, operation: Any, mode: schemathesis.GenerationMode, share: int, documented: set[int], seen: Any
) -> None:
    @settings(
        max_examples=share,
        database=None,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def asked(case: schemathesis.Case) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            case.body["model"] = "macaron"  # any other name is refused before the rest is looked at
        answer = case.call(base_url=url, timeout=60)
        seen[operation.label, mode.value, answer.status_code] += 1
        # 404 and 405 are also what a path or a method that is none of the description's comes to.
        assert answer.status_code in documented | {404, 405}, answer.text
        if answer.status_code >= 400 and operation.path != "/health":
            error = answer.json()["error"]
            assert error["message"] and error["type"], error
            assert answer.status_code < 500 or error.get("code") == "reply_unfit", error

    try:
        asked()
    except Unsatisfiable:  # an operation without parameters has nothing that could be unfitting
        seen[operation.label, mode.value, 0] += 1
