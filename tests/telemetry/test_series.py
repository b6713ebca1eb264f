"""What a scraper reads of our counters and histograms, beside the library's own."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from mlx_stack_proxy.telemetry.series import Counter, Histogram

BOUNDS = (0.05, 0.1, 2.5, 600)
VALUES = (0.0, 0.05, 0.050001, 0.1, 2.4, 2.5, 599.9, 600, 600.1, 1e9)


def text_of(*collectors: prometheus_client.registry.Collector) -> list[str]:
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]  # the library's alone


def test_a_counter_reads_like_the_librarys() -> None:
    ours = Counter("it_happened", "How often", ("tier", "why"))
    theirs = prometheus_client.Counter("it_happened", "How often", ("tier", "why"), registry=None)
    for tier, why, by in (("fast", 'a "quote"\n', 1), ("slow", "b", 0), ("slow", "b", 2.5)):
        ours.inc(tier, why, by=by)
        theirs.labels(tier, why).inc(by)
    assert text_of(ours) == text_of(theirs)


def test_one_without_labels_is_there_before_anything_happened() -> None:
    ours = Counter("it_happened", "How often", ())
    assert "it_happened_total 0.0" in text_of(ours)
    assert text_of(ours) == text_of(
        prometheus_client.Counter("it_happened", "How often", registry=None)
    )


@pytest.mark.parametrize("labels", [(), ("tier",)])
def test_a_histogram_reads_like_the_librarys(labels: tuple[str, ...]) -> None:
    ours = Histogram("it_took", "Seconds", labels, BOUNDS)
    theirs = prometheus_client.Histogram(
        "it_took", "Seconds", labels, buckets=BOUNDS, registry=None
    )
    values = tuple("fast" for _ in labels)
    for value in VALUES:
        ours.observe(value, *values)
        (theirs.labels(*values) if labels else theirs).observe(value)
    assert text_of(ours) == text_of(theirs)


def test_none_that_is_not_observed_is_shown_but_without_labels() -> None:
    assert text_of(Histogram("it_took", "Seconds", ("tier",), BOUNDS)) == text_of(
        prometheus_client.Histogram("it_took", "Seconds", ("tier",), buckets=BOUNDS, registry=None)
    )
    assert text_of(Histogram("it_took", "Seconds", (), BOUNDS)) == text_of(
        prometheus_client.Histogram("it_took", "Seconds", (), buckets=BOUNDS, registry=None)
    )


@pytest.mark.parametrize("labels", [(), ("fast", "more")])
def test_labels_are_as_many_as_their_names(labels: tuple[str, ...]) -> None:
    counter = Counter("it_happened", "How often", ("tier",))
    histogram = Histogram("it_took", "Seconds", ("tier",), BOUNDS)
    for wrong in (lambda: counter.inc(*labels), lambda: histogram.observe(1, *labels)):
        with pytest.raises(ValueError, match="labels"):
            wrong()
    assert not counter.values


def test_threads_that_count_at_once_lose_nothing() -> None:
    counter = Counter("it_happened", "How often", ("stage",))

    def count() -> None:
        for _ in range(5_000):
            counter.inc("loop")

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            done = [pool.submit(count) for _ in range(8)]
        assert [one.result() for one in done] == [None] * 8
    finally:
        sys.setswitchinterval(before)
    assert counter.values == {("loop",): 40_000}
