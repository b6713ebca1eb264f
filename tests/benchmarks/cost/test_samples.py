import pytest

from benchmarks.cost.samples import Samples, percentile


def test_ratios_are_made_within_a_round() -> None:
    samples = Samples()
    for turn, (mine, theirs) in enumerate([(4.0, 2.0), (9.0, 3.0), (100.0, 50.0)]):
        samples.add(turn, "mine", "cpu", mine)
        samples.add(turn, "theirs", "cpu", theirs)

    assert samples.ratios("mine", "theirs", "cpu") == [2.0, 3.0, 2.0]


def test_differences_are_of_one_round() -> None:
    samples = Samples()
    for turn, (more, less) in enumerate([(5.0, 1.0), (7.0, 2.0)]):
        samples.add(turn, "mine", "long", more)
        samples.add(turn, "mine", "short", less)

    assert samples.differences("mine", "long", "short") == [4.0, 5.0]


def test_percentiles_of_pools_are_of_a_round_or_of_all_together() -> None:
    samples = Samples()
    samples.add_pool(0, "mine", "first", [1.0, 2.0, 3.0])
    samples.add_pool(1, "mine", "first", [10.0])
    samples.add_pool(0, "base", "first", [0.5])

    assert samples.added("mine", "base", "first", 1.0) == [2.5]
    assert samples.pooled("mine", "first", 0.5) == 2.0
    assert samples.pooled("nobody", "first", 0.5) is None


@pytest.mark.parametrize(("part", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1)])
def test_percentile(part: float, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), part) == expected
