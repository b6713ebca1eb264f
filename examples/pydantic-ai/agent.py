import json

from pydantic_ai import Agent

ORDER = {"customer_id": "C-77", "total": 129.5, "currency": "EUR", "status": "shipped"}

agent = Agent("openai-chat:auto")


@agent.tool_plain
def get_order(order_id: str) -> str:
    """Look up an order: its customer, total, currency and status."""
    return json.dumps({"order_id": order_id, **ORDER})


print(agent.run_sync("Look up order A-1043.").output)
