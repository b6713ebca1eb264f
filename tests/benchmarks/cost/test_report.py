import pytest

from benchmarks.cost import measure, report
from benchmarks.cost.contestants import HTTPX, PROXY
from benchmarks.cost.goals import UPSTREAM
from benchmarks.cost.samples import Samples


def measured() -> Samples:
    samples = Samples()
    for turn, factor in enumerate((1.0, 1.1, 0.9)):
        for name, cost in ((HTTPX, 1.0), (PROXY, 2.0 * factor)):
            for kind, more in (("plain", 0), ("stream", 0), ("seen", 3)):
                samples.add(turn, name, f"cpu.{kind}", (cost + more) / 1e3)
                samples.add(turn, name, f"wall.{kind}", cost / 500)
            samples.add(turn, name, "rate.plain", 1000 / cost)
            samples.add(turn, name, "cpu.chunk", cost * 50e-6)
        for axis in measure.AXES:
            for x in axis.xs:
                samples.add(turn, PROXY, axis.figure(x), (2 + 0.01 * x) / 1e3)
        samples.add_pool(turn, UPSTREAM, "first.100", [0.001] * 50)
        samples.add_pool(turn, PROXY, "first.100", [0.002] * 50)
    samples.add(0, PROXY, "rss.idle", 80e6)
    samples.add(0, PROXY, "rss.more", 50e6)
    return samples


def line_with(text: str, part: str) -> str:
    return next(line for line in text.splitlines() if part in line)


def test_a_cell_has_the_median_and_the_ratio_with_its_range() -> None:
    table = report.cost_table(measured(), [HTTPX, PROXY], "CPU", report.COST)

    assert "2.00 · 2.00 (1.80–2.20) ×" in line_with(table, "plain request")
    assert "1.00 (1.00–1.00)" in line_with(table, "plain request")
    assert "100 · 2.00" in line_with(table, "a streamed chunk")


def test_what_was_not_measured_has_no_row_and_no_title() -> None:
    samples = Samples()
    samples.add(0, PROXY, "cpu.plain", 0.002)

    text = report.whole(samples, [HTTPX, PROXY], {})

    assert "plain request" in text
    assert "tool call" not in text
    assert "### First text" not in text
    assert "### Growth" not in text


def test_the_report_judges_each_goal_by_itself() -> None:
    text = report.whole(measured(), [HTTPX, PROXY], {PROXY: 1000})

    assert "| met " in line_with(text, "plain request: the httpx relay")
    assert "| met " in line_with(text, "first text, p99 added")
    assert "| **not met** " in line_with(text, "400 messages, all but 2 seen: CPU more")
    assert "| met " in line_with(text, "tools offered, all new: slope")


def test_a_streams_that_nobody_answered_are_at_least_so_late() -> None:
    samples = measured()
    samples.add(0, PROXY, "unanswered.100", 3)

    table = report.first_text_table(samples, [PROXY])

    assert "≥ 1.00" in line_with(table, "p50, 100 streams")


@pytest.mark.parametrize(
    ("value", "text"),
    [(12345.6, "12,346"), (123.4, "123"), (12.34, "12.3"), (1.234, "1.23"), (0.0667, "0.067")],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert report.number(value) == text
