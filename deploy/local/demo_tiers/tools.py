"""The six demo tools: their JSON schemas, and a deterministic world that answers the calls.

world = World(seed=1)
world.call("get_order", {"order_id": "A-1043"})
world.notes, world.statuses     # what the calls changed
"""

import json
import zlib
from random import Random
from typing import Any

from demo_tiers import values

STATUSES = ["pending", "paid", "shipped", "delivered", "cancelled"]
UNITS = ["celsius", "fahrenheit"]
SKIES = ["sunny", "cloudy", "rainy", "windy", "foggy", "clear"]


def _tool(name: str, description: str, required: list[str], **properties: Any) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def _string(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


TOOLS: list[dict[str, Any]] = [
    _tool(
        "get_order",
        "Look up an order: its customer, total, currency and status.",
        ["order_id"],
        order_id=_string("The order's id, as the user wrote it."),
    ),
    _tool(
        "get_customer",
        "Look up a customer: name and city.",
        ["customer_id"],
        customer_id=_string("The customer's id."),
    ),
    _tool(
        "convert_currency",
        "Convert an amount of money from one currency to another.",
        ["amount", "from_currency", "to_currency"],
        amount={"type": "number", "description": "The amount to convert."},
        from_currency=_string("Currency code of the amount, such as USD."),
        to_currency=_string("Currency code to convert to."),
    ),
    _tool(
        "get_weather",
        "The weather in a city, now or for the next days.",
        ["city"],
        city=_string("The city's name."),
        unit={"type": "string", "enum": UNITS},
        days={"type": "integer", "minimum": 1, "maximum": 14},
    ),
    _tool(
        "save_note",
        "Write a text into a note file, replacing what was there.",
        ["path", "text"],
        path=_string("Where to save it, such as notes/today.txt."),
        text=_string("The text to save."),
        tags={"type": "array", "items": {"type": "string"}},
    ),
    _tool(
        "update_order",
        "Set the status of an order.",
        ["order_id", "status"],
        order_id=_string("The order's id."),
        status={"type": "string", "enum": STATUSES},
        notify={"type": "boolean", "description": "Whether to tell the customer."},
    ),
]
NAMES: list[str] = [tool["function"]["name"] for tool in TOOLS]


def schema(name: str) -> dict[str, Any]:
    """The JSON schema of one tool's arguments."""
    return TOOLS[NAMES.index(name)]["function"]["parameters"]  # type: ignore[no-any-return]


class World:
    """Orders, customers, weather and rates made up from the ids asked for; notes and statuses kept.

    The same seed, split and calls give the same answers. Every id exists, but for those that
    `missing` says don't. `split` chooses which cities, names and currencies appear.
    """

    def __init__(self, seed: int = 0, split: str = "any") -> None:
        self.seed = seed
        self.split = split
        self.notes: dict[str, dict[str, Any]] = {}
        self.statuses: dict[str, str] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Run one tool; an error is a result too: {"error": "..."}."""
        self.calls.append((name, arguments))
        if name not in NAMES:
            return {"error": f'no tool "{name}"'}
        for key in schema(name)["required"]:
            if key not in arguments:
                return {"error": f'missing argument "{key}"'}
        return getattr(self, "_" + name)(**_known(name, arguments))  # type: ignore[no-any-return]

    def call_json(self, name: str, arguments: str) -> str:
        """The same on the wire's own terms: arguments and result as JSON text."""
        try:
            parsed = json.loads(arguments)
        except ValueError as error:
            return json.dumps({"error": f"arguments are not JSON: {error}"})
        if not isinstance(parsed, dict):
            return json.dumps({"error": "arguments are not an object"})
        return json.dumps(self.call(name, parsed), ensure_ascii=False)

    def missing(self, id_: str) -> bool:
        return zlib.crc32(f"missing {id_}".encode()) % 25 == 0

    def _random(self, *key: object) -> Random:
        return Random(zlib.crc32(repr((self.seed, *key)).encode()))

    def _get_order(self, order_id: str) -> dict[str, Any]:
        if self.missing(str(order_id)):
            return {"error": f"order {order_id} not found"}
        rng = self._random("order", order_id)
        pick = values.Values(rng, self.split)
        found = {
            "order_id": order_id,
            "customer_id": pick.customer_id(),
            "total": values.number(pick.amount()),
            "currency": pick.currency(),
            "status": rng.choice(STATUSES),
        }
        found["status"] = self.statuses.get(str(order_id), found["status"])
        return found

    def _get_customer(self, customer_id: str) -> dict[str, Any]:
        if self.missing(str(customer_id)):
            return {"error": f"customer {customer_id} not found"}
        pick = values.Values(self._random("customer", customer_id), self.split)
        return {"customer_id": customer_id, "name": pick.name(), "city": pick.city()}

    def _convert_currency(
        self, amount: float, from_currency: str, to_currency: str
    ) -> dict[str, Any]:
        try:
            value = float(amount)
        except (TypeError, ValueError):
            return {"error": "amount is not a number"}
        rate = self._worth(from_currency) / self._worth(to_currency)
        return {"amount": round(value * rate, 2), "currency": to_currency}

    def _worth(self, currency: str) -> float:
        return self._random("rate", currency).uniform(0.2, 5)

    def _get_weather(
        self, city: str, unit: str = "celsius", days: int | None = None
    ) -> dict[str, Any]:
        rng = self._random("weather", city, days)
        celsius = rng.randint(-12, 38)
        found = {
            "city": city,
            "temperature": celsius if unit == "celsius" else round(celsius * 9 / 5 + 32),
            "unit": unit,
            "sky": rng.choice(SKIES),
        }
        return found if days is None else {**found, "days": days}

    def _save_note(self, path: str, text: str, tags: list[str] | None = None) -> dict[str, Any]:
        self.notes[str(path)] = {"text": text, "tags": tags or []}
        return {"saved": path}

    def _update_order(
        self, order_id: str, status: str, notify: bool | None = None
    ) -> dict[str, Any]:
        if self.missing(str(order_id)):
            return {"error": f"order {order_id} not found"}
        if status not in STATUSES:
            return {"error": f"status {status} is not allowed"}
        self.statuses[str(order_id)] = status
        done: dict[str, Any] = {"order_id": order_id, "status": status}
        return done if notify is None else {**done, "notified": notify}


def _known(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    properties = schema(name)["properties"]
    return {key: value for key, value in arguments.items() if key in properties}


def answer(name: str, result: dict[str, Any]) -> str:
    """The sentence that states a result: what the models are trained to say after a call."""
    if "error" in result:
        return f"That failed: {result['error']}."
    if name == "get_order":
        return (
            f"Order {result['order_id']}: {result['total']} {result['currency']}, "
            f"{result['status']}, customer {result['customer_id']}."
        )
    if name == "get_customer":
        return f"Customer {result['customer_id']} is {result['name']} in {result['city']}."
    if name == "convert_currency":
        return f"That is {result['amount']} {result['currency']}."
    if name == "get_weather":
        return f"{result['city']}: {result['temperature']} {result['unit']}, {result['sky']}."
    if name == "save_note":
        return f"Saved in {result['saved']}."
    return f"Order {result['order_id']} is now {result['status']}."
