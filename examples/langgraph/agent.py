import json

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

ORDER = {"customer_id": "C-77", "total": 129.5, "currency": "EUR", "status": "shipped"}


def get_order(order_id: str) -> str:
    """Look up an order: its customer, total, currency and status."""
    return json.dumps({"order_id": order_id, **ORDER})


agent = create_agent(ChatOpenAI(model="auto"), [get_order])
state = agent.invoke({"messages": [{"role": "user", "content": "Look up order A-1043."}]})
print(state["messages"][-1].content)
