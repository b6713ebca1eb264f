"""Where a hint goes, rendered by chat templates: strict ones refuse what others swallow.

The templates are ours, and enforce what the models' own enforce: Mistral's that users and
assistants alternate, tool calls and their results left out of the count; Gemma's that they do
without any exception, and that there is no system message; Qwen's that a system message comes
first.
"""

from __future__ import annotations

from typing import Any

import pytest
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mlx_stack_proxy.engine.request import UpstreamRequest
from mlx_stack_proxy.loop_detection.stage import LoopDetection
from mlx_stack_proxy.settings import Settings
from tests.engine.exchanges import client_request, exchange
from tests.loop_detection.histories import TASK, Json, answers, calls, says, steps, user

MISTRAL = """\
{%- set said = messages[1:] if messages[0].role == 'system' else messages -%}
{%- set turns = namespace(count=0) -%}
{%- for m in said -%}
  {%- if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) -%}
    {%- if (m.role == 'user') != (turns.count % 2 == 0) -%}
      {{ raise_exception('user and assistant must alternate') }}
    {%- endif -%}
    {%- set turns.count = turns.count + 1 -%}
  {%- elif m.role == 'system' -%}{{ raise_exception('only one system message, and first') }}
  {%- elif m.role not in ('tool', 'assistant') -%}{{ raise_exception('unknown role') }}
  {%- endif -%}
{%- endfor -%}
{%- for m in messages -%}
[{{ m.role }}]{{ m.content or '' }}{% for c in m.tool_calls or () %}<call {{ c.id }}>{% endfor %}
{% endfor -%}
"""
GEMMA = """\
{%- for m in messages -%}
  {%- if m.role == 'system' -%}{{ raise_exception('no system role') }}{%- endif -%}
  {%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}
    {{ raise_exception('conversation roles must alternate') }}
  {%- endif -%}
<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}
{{ m.content }}<end_of_turn>
{% endfor -%}
"""
QWEN = """\
{%- for m in messages -%}
  {%- if m.role == 'system' and not loop.first -%}
    {{ raise_exception('the system message must come first') }}
  {%- endif -%}
<|im_start|>{{ m.role }}
{{ m.content or '' }}{% for c in m.tool_calls or () %}<tool_call>{{ c.id }}</tool_call>{% endfor %}
<|im_end|>
{% endfor -%}
"""
A = ("search", {"query": "quokka"}, "nothing found")
SYSTEM: Json = {"role": "system", "content": "Be brief."}
HINT = "Do not call it again"


def fail(message: str) -> None:
    raise TemplateError(message)


def rendered(template: str, messages: list[Json]) -> str:
    environment = ImmutableSandboxedEnvironment()
    environment.globals["raise_exception"] = fail
    return environment.from_string(template).render(messages=messages)


def hinted(messages: list[Json], placement: str) -> list[Json]:
    tiers: Any = {"fast": {"model": "fast", "hint_placement": placement}}
    escalation: Any = {
        "escalation": {"chain": ["fast"]},
        "token_budget": {"downgrade_tier": "fast"},
    }
    stage = LoopDetection(Settings(tiers=tiers, reliability=escalation))
    whole = exchange(client_request(messages=messages))
    request = UpstreamRequest("fast", dict(whole.request.body))
    state = stage.open(whole)
    state.on_request(request)
    assert "Loop" in state.remarks.notes
    new: list[Json] = request.body["messages"]
    return new


def parallel() -> list[Json]:
    messages: list[Json] = [TASK]
    for _ in range(3):
        both = calls(("search", {"query": "a"}), ("search", {"query": "b"}))
        messages += [both, *answers(both, "one", "two")]
    return messages


AGENT = [SYSTEM, TASK, *steps(A, A, A)]


@pytest.mark.parametrize("messages", [AGENT, parallel()])
@pytest.mark.parametrize(
    ("template", "placement"),
    [(MISTRAL, "tool_result"), (QWEN, "user"), (QWEN, "tool_result")],
)
def test_behind_tool_results(template: str, placement: str, messages: list[Json]) -> None:
    text = rendered(template, hinted(messages, placement))
    assert text.count(HINT) == 1
    last_result = "two" if messages is not AGENT else "nothing found"
    assert text.index(HINT) > text.rindex(last_result), "behind all results"
    assert text.index(HINT) > text.rindex("call_"), "and all calls"


def test_a_user_message_there_is_what_a_strict_template_refuses() -> None:
    """Which is why such a tier says ``hint_placement: tool_result``."""
    with pytest.raises(TemplateError, match="alternate"):
        rendered(MISTRAL, hinted(AGENT, "user"))


@pytest.mark.parametrize("template", [MISTRAL, GEMMA, QWEN])
@pytest.mark.parametrize("placement", ["user", "tool_result"])
def test_in_the_user_s_last_message(template: str, placement: str) -> None:
    """Agents whose calls are text: the observation is the user's, and the hint joins it."""
    messages = [TASK]
    for _ in range(3):
        messages += [says("Action: search"), user("Observation: nothing")]
    text = rendered(template, hinted(messages, placement))
    assert text.index("Do not repeat it") > text.rindex("Observation: nothing")
