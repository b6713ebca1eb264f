import json

from openai import OpenAI

ORDER = {"customer_id": "C-77", "total": 129.5, "currency": "EUR", "status": "shipped"}


def get_order(order_id: str) -> str:
    return json.dumps({"order_id": order_id, **ORDER})


TOOL = {
    "type": "function",
    "function": {
        "name": "get_order",
        "description": "Look up an order: its customer, total, currency and status.",
        "parameters": {
            "type": "object",
            "properties": {"order_id": {"type": "string"}},
            "required": ["order_id"],
        },
    },
}

client = OpenAI()  # its address from OPENAI_BASE_URL
messages = [{"role": "user", "content": "Look up order A-1043."}]
while True:
    reply = client.chat.completions.create(model="auto", messages=messages, tools=[TOOL])
    message = reply.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    if not message.tool_calls:
        break
    for call in message.tool_calls:
        result = get_order(**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
print(message.content)
