import json

from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled

ORDER = {"customer_id": "C-77", "total": 129.5, "currency": "EUR", "status": "shipped"}


@function_tool
def get_order(order_id: str) -> str:
    """Look up an order: its customer, total, currency and status."""
    return json.dumps({"order_id": order_id, **ORDER})


set_default_openai_api("chat_completions")  # or its default: /v1/responses is guarded, too
set_tracing_disabled(True)  # else it sends traces to OpenAI
agent = Agent(name="Clerk", model="auto", tools=[get_order])
print(Runner.run_sync(agent, "Look up order A-1043.").final_output)
