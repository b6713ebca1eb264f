"""The specification's five stages: one list, each with its own section of the settings."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from mlx_stack_proxy import stages
from mlx_stack_proxy.escalation.stage import Escalation
from mlx_stack_proxy.loop_detection.stage import LoopDetection
from mlx_stack_proxy.memory_pressure.stage import MemoryPressure
from mlx_stack_proxy.settings import DEFAULT_TIERS, Settings
from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.token_budget.stage import TokenBudget
from mlx_stack_proxy.tool_validation.stage import ToolValidation
from tests.engine.exchanges import attempt, client_request, exchange
from tests.support.replies import chunk, data
from tests.tool_validation.calls import WRITE

FIVE = [LoopDetection, ToolValidation, TokenBudget, MemoryPressure, Escalation]


@pytest.mark.specification(178)
def test_all_five_stages_are_one_list() -> None:
    assert [type(stage) for stage in stages.build(Settings(tiers=DEFAULT_TIERS))] == FIVE


@pytest.mark.specification(178)
@pytest.mark.parametrize(("section", "left_out"), [*zip(stages.STAGES, FIVE, strict=True)])
def test_a_section_that_is_off_leaves_its_stage_out(section: str, left_out: type) -> None:
    settings = from_mapping({"tiers": DEFAULT_TIERS, "reliability": {section: {"enabled": False}}})
    built = [type(stage) for stage in stages.build(settings)]
    assert built == [stage for stage in FIVE if stage is not left_out]


def test_a_call_in_many_pieces_is_held_in_little_memory() -> None:
    """It held 1.8 kB for each piece."""
    asked = exchange(client_request(tools=[WRITE]))
    one = attempt(asked, stages=stages.build(Settings(tiers=DEFAULT_TIERS)))
    assert one.on_request() is None
    pieces = ['{"path": "a", "content": "', *(f" {number:x}" for number in range(4_000)), '"}']
    gc.collect()
    tracemalloc.start()
    for number, arguments in enumerate(pieces):
        function = {"name": "write_file" if not number else None, "arguments": arguments}
        call = {"index": 0, "id": "call_1" if not number else None, "function": function}
        one.feed(data(chunk({"tool_calls": [call]})))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert one.verdict is None
    assert held < 125 * len(pieces)
