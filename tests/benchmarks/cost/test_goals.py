import pytest

from benchmarks.cost import goals, measure
from benchmarks.cost.contestants import FRAME, HTTPX, LITELLM, PORTKEY, PROXY
from benchmarks.cost.goals import Goal
from benchmarks.cost.samples import Samples


def verdicts(samples: Samples) -> dict[str, Goal]:
    return {goal.text: goal for goal in goals.judge(samples)}


def costs(**cpu: list[float]) -> Samples:
    """Milliseconds a plain request, round by round."""
    samples = Samples()
    names = {"relay": HTTPX, "proxy": PROXY, "portkey": PORTKEY, "litellm": LITELLM, "frame": FRAME}
    for short, values in cpu.items():
        for turn, value in enumerate(values):
            samples.add(turn, names[short], "cpu.plain", value / 1e3)
    return samples


def test_the_median_of_the_rounds_is_judged() -> None:
    assert goals.judge(Samples()) == []
    samples = costs(relay=[1, 1, 1], proxy=[2.1, 2.2, 9.0])
    goal = verdicts(samples)["plain request: the httpx relay's CPU"]
    assert goal.met
    assert goal.verdict == "met (within it in 2 of 3 rounds)"


@pytest.mark.parametrize(
    ("goal", "cpu", "met"),
    [
        ("the httpx relay's CPU", {"relay": [1, 1, 1], "proxy": [2.1, 2.3, 2.7]}, False),
        ("Portkey's CPU", {"portkey": [1.01], "proxy": [1]}, True),
        ("Portkey's CPU", {"portkey": [1.0], "proxy": [1]}, False),
        ("LiteLLM's CPU", {"litellm": [14.1], "proxy": [1]}, True),
        ("LiteLLM's CPU", {"litellm": [13.9], "proxy": [1]}, False),
    ],
)
def test_a_plain_request_beside_others(goal: str, cpu: dict[str, list[float]], met: bool) -> None:
    found = verdicts(costs(**cpu))[f"plain request: {goal}"]
    assert (found.met, found.verdict.startswith("met")) == (met, met)


def test_a_history_is_judged_by_what_it_costs_more() -> None:
    samples = costs(proxy=[2, 3])
    for turn, value in enumerate([2.9, 4.2]):
        samples.add(turn, PROXY, "cpu.seen", value / 1e3)

    goal = verdicts(samples)["400 messages, all but 2 seen: CPU more than plain"]

    assert goal.values == pytest.approx((0.9, 1.2))
    assert not goal.met


def test_first_text_is_what_is_added_to_the_upstream_alone() -> None:
    samples = Samples()
    samples.add_pool(0, goals.UPSTREAM, "first.100", [0.001] * 100)
    samples.add_pool(0, PROXY, "first.100", [0.002] * 98 + [0.0039] * 2)

    goal = verdicts(samples)["first text, p99 added at 100 streams"]

    assert goal.values == pytest.approx((2.9,))
    assert goal.met


def grown(axis: measure.Axis, exponent: float, *, disturbed: int = 0) -> Samples:
    """``disturbed``: at which third of the points the machine was busy with something else."""
    samples = Samples()
    for turn in range(4):
        for place, x in enumerate(axis.xs):
            busy = 3.0 if turn and (place + turn) % 3 == disturbed else 1.0
            cost = busy * (0.003 + 0.00001 * x**exponent)
            samples.add(turn, PROXY, axis.figure(x), cost)
    return samples


@pytest.mark.parametrize("axis", measure.AXES, ids=lambda axis: axis.name)
@pytest.mark.parametrize(("exponent", "met"), [(0.5, True), (1.0, True), (1.5, False), (2, False)])
@pytest.mark.parametrize("disturbed", [0, 1, 2])
def test_what_is_new_may_cost_in_proportion_only(
    axis: measure.Axis, exponent: float, met: bool, disturbed: int
) -> None:
    (goal,) = (
        goal
        for goal in goals.judge(grown(axis, exponent, disturbed=disturbed))
        if "slope" in goal.text
    )
    assert goal.met is met


def test_what_does_not_grow_has_no_slope() -> None:
    assert goals.steepening({1: 2.0, 2: 2.0, 3: 2.1}) is None
    assert goals.steepening({1: 2.0, 2: 3.0}) is None
