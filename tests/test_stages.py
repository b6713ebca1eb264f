"""The specification's five stages: one list, each with its own section of the settings."""

from __future__ import annotations

import pytest

from mlx_stack_proxy import stages
from mlx_stack_proxy.escalation.stage import Escalation
from mlx_stack_proxy.loop_detection.stage import LoopDetection
from mlx_stack_proxy.memory_pressure.stage import MemoryPressure
from mlx_stack_proxy.settings import DEFAULT_TIERS, Settings
from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.token_budget.stage import TokenBudget
from mlx_stack_proxy.tool_validation.stage import ToolValidation

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
