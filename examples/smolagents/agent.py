import json

from smolagents import OpenAIModel, ToolCallingAgent, tool

ORDER = {"customer_id": "C-77", "total": 129.5, "currency": "EUR", "status": "shipped"}


@tool
def get_order(order_id: str) -> str:
    """Look up an order: its customer, total, currency and status.

    Args:
        order_id: The order's id.
    """
    return json.dumps({"order_id": order_id, **ORDER})


agent = ToolCallingAgent(tools=[get_order], model=OpenAIModel("auto"))
print(agent.run("Look up order A-1043."))
