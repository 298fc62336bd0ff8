"""One request to one endpoint, with its retries; the only file that speaks HTTP to models."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Event, Lock
from typing import Any, TypeVar

import httpx2
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential
from tenacity.nap import sleep_using_event

from loop.core.errors import UserError
from loop.remote.endpoint import Endpoint

LONGEST_WAIT = 60.0  # seconds; an endpoint that wants a longer pause is not waited for
LARGEST_REPLY = 1_000_000  # bytes

Result = TypeVar("Result")


class NoAnswer(Exception):
    """A model gave no usable answer; the message says why and repeats nothing that the endpoint sent.

    ``status`` is the HTTP status where that was the reason.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class TryAgain(NoAnswer):
    """A failure that may pass; ``after`` is the pause in seconds that the endpoint asked for, if it did."""

    def __init__(self, message: str, status: int | None = None, after: float | None = None) -> None:
        super().__init__(message, status)
        self.after = after


@dataclass
class Allowance:
    """Requests beyond the first of each sample that may still be made; ``left`` None is no limit.

    Threads share it. Once ``closed`` is set nothing is granted and nobody sleeps on.
    """

    left: int | None = None
    closed: Event = field(default_factory=Event)
    _lock: Lock = field(default_factory=Lock)

    def take(self) -> bool:
        """Whether one more request may be made; it then counts."""
        with self._lock:
            if self.closed.is_set() or self.left == 0:
                return False
            self.left = None if self.left is None else self.left - 1
            return True


@dataclass
class Line:
    """An open way to one endpoint; ``structured`` turns false when the endpoint shows that it cannot.

    ``timeout`` and ``backoff`` (the first pause between tries) are in seconds, ``largest`` (a
    reply) is in bytes.
    """

    endpoint: Endpoint
    client: httpx2.Client
    timeout: float
    retries: int
    backoff: float
    allowance: Allowance
    structured: bool = True
    largest: int = LARGEST_REPLY


@contextmanager
def opened(
    endpoints: Sequence[Endpoint], *, timeout: float, retries: int, backoff: float, largest: int = LARGEST_REPLY
) -> Iterator[tuple[Line, ...]]:
    """A line to each endpoint, over one pool of connections and with one allowance."""
    allowance = Allowance()
    with httpx2.Client(timeout=timeout) as client:
        yield tuple(
            Line(endpoint, client, timeout, retries, backoff, allowance, endpoint.structured, largest)
            for endpoint in endpoints
        )


def persist(line: Line, call: Callable[[], Result]) -> Result:
    """``call`` again while it raises TryAgain and there are retries, with the pauses that were asked for.

    Raises NoAnswer when the failure is final or the tries are spent.
    """
    again = Retrying(
        retry=retry_if_exception_type(TryAgain),
        stop=stop_after_attempt(line.retries + 1),
        wait=_pause(wait_random_exponential(multiplier=line.backoff, max=LONGEST_WAIT)),
        sleep=sleep_using_event(line.allowance.closed),
        reraise=True,
    )
    return again(call)


def _pause(usual: Callable[[RetryCallState], float]) -> Callable[[RetryCallState], float]:
    """The pause that the endpoint asked for, or else the usual one."""

    def wait(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        asked = error.after if isinstance(error, TryAgain) else None
        return usual(state) if asked is None else asked

    return wait


def fetch(line: Line, path: str, body: dict[str, Any] | None = None) -> bytes:
    """One request, a POST where there is a body: what was sent back. Raises NoAnswer, and TryAgain where it may help.

    ``line.timeout`` seconds bound the whole reply, however slowly it comes.
    """
    deadline = time.monotonic() + line.timeout
    with _sent(line, path, body) as response:
        return _read(response, deadline, line.largest)


def events(line: Line, path: str, body: dict[str, Any]) -> Generator[str, None, None]:
    """One POST that is answered by server-sent events: the data of each as it comes, bounded and raising as ``fetch``.

    A server learns that nobody reads on when the iterator is closed.
    """
    deadline, size = time.monotonic() + line.timeout, 0
    with _sent(line, path, body) as response:
        for event in httpx2.EventSource(response, max_event_size=line.largest):
            size += len(event.data)
            if size > line.largest:
                raise NoAnswer("malformed: the reply is too large")
            if time.monotonic() > deadline:
                raise httpx2.ReadTimeout("the reply came too slowly")
            yield event.data


@contextmanager
def _sent(line: Line, path: str, body: dict[str, Any] | None) -> Iterator[httpx2.Response]:
    """The reply to one request, still to be read; whatever fails meanwhile is NoAnswer or TryAgain."""
    try:
        key = line.endpoint.key()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        method = "GET" if body is None else "POST"
        with line.client.stream(method, f"{line.endpoint.url}{path}", json=body, headers=headers) as response:
            if response.status_code != httpx2.codes.OK:
                raise _refusal(response)
            yield response
    except UserError as error:
        raise NoAnswer(str(error)) from None
    except httpx2.TimeoutException:
        raise TryAgain(f"no answer within {line.timeout:g} s") from None
    except httpx2.SSEError:
        raise NoAnswer("malformed: not a stream of events") from None
    except httpx2.TransportError as error:
        raise TryAgain(f"the connection failed ({type(error).__name__})") from None
    except (
        httpx2.HTTPError,
        httpx2.InvalidURL,
        UnicodeError,
    ) as error:  # UnicodeError: a host that cannot be looked up
        raise NoAnswer(f"the endpoint cannot be used ({type(error).__name__})") from None


def _read(response: httpx2.Response, deadline: float, largest: int) -> bytes:
    data = bytearray()
    for chunk in response.iter_bytes():
        data += chunk
        if len(data) > largest:
            raise NoAnswer("malformed: the reply is too large")
        if time.monotonic() > deadline:
            raise httpx2.ReadTimeout("the reply came too slowly")
    return bytes(data)


def _refusal(response: httpx2.Response) -> NoAnswer:
    """The failure a status stands for; the body is not read, for it may repeat the key."""
    status = response.status_code
    if status not in (408, 409, 425, 429) and status < 500:
        return NoAnswer(f"HTTP {status}", status)
    after = retry_after(response.headers.get("Retry-After", ""), datetime.now(UTC))
    if after is not None and after > LONGEST_WAIT:
        return NoAnswer(f"HTTP {status}, to be asked again after {after:.0f} s", status)
    return TryAgain(f"HTTP {status}", status, after)


def retry_after(header: str, now: datetime) -> float | None:
    """The pause in seconds that a Retry-After header asks for (RFC 9110, 10.2.3), or None when it says nothing."""
    text = header.strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
