"""What the server did, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from loop.core.conversation import HopRecord

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Figures:
    """Counts of one server, in a registry of its own; ``waiting`` tells how many requests the engine has not begun."""

    def __init__(self, waiting: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "macaron_requests", "Requests answered, by route and status.", ("route", "status"), registry=self.registry
        )
        self._turn = Histogram(
            "macaron_turn_seconds", "Seconds until a turn was answered.", buckets=_SECONDS, registry=self.registry
        )
        self._hop = Histogram(
            "macaron_hop_seconds", "Seconds of each generation.", ("hop",), buckets=_SECONDS, registry=self.registry
        )
        self._tokens = Counter(
            "macaron_tokens",
            "Tokens by hop: prompt (cached ones among them), cached, generated.",
            ("hop", "kind"),
            registry=self.registry,
        )
        gauge = Gauge("macaron_waiting_requests", "Requests that the engine has not begun.", registry=self.registry)
        gauge.set_function(waiting)

    def requested(self, route: str, status: int) -> None:
        """Count a request that was answered; ``route`` is a path of the description, never what a client wrote."""
        self._requests.labels(route, str(status)).inc()

    def answered(self, hops: Sequence[HopRecord], seconds: float) -> None:
        """Count a turn that was answered."""
        self._turn.observe(seconds)
        for hop in hops:
            self._hop.labels(hop.hop).observe(hop.seconds)
            for kind in ("prompt", "cached", "generated"):
                self._tokens.labels(hop.hop, kind).inc(getattr(hop, f"{kind}_tokens"))

    def text(self) -> bytes:
        """All of them, in Prometheus' text format."""
        return generate_latest(self.registry)
