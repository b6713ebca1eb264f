import json

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

ORDER = {"customer_id": "C-77", "total": 129.5, "currency": "EUR", "status": "shipped"}


@tool("get_order")
def get_order(order_id: str) -> str:
    """Look up an order: its customer, total, currency and status."""
    return json.dumps({"order_id": order_id, **ORDER})


clerk = Agent(
    role="Order clerk",
    goal="Answer questions about orders",
    backstory="You use the tools.",
    tools=[get_order],
    llm=LLM(model="auto", custom_openai=True),
)
task = Task(
    description="Look up order A-1043.",
    expected_output="The order's total and status",
    agent=clerk,
)
print(Crew(agents=[clerk], tasks=[task]).kickoff())
