"""Questions and tasks over the six tools, made from a seed, with what is expected of a model.

Splits: `train` is what the models learn from (its first questions are `seen`), `unseen` has
held-out values in known phrasings, `rephrased` has held-out values in held-out phrasings.

    for question in questions(seed=7, split="unseen", count=200): ...
    for task in tasks(seed=7, split="unseen", count=200): ...
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from demo_tiers import phrases, tools, values

SPLITS = ("train", "unseen", "rephrased")
TRAIN_SEED = 2026


@dataclass(frozen=True)
class Question:
    """One request that one call answers."""

    text: str
    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A request that takes several calls, one after another, in this order.

    `calls` are the expected calls, `results` what the world answers to them, `notes` and
    `statuses` the state it must be in afterwards, `answer` the final sentence of a good model,
    `facts` the values that any right final answer must contain.
    """

    text: str
    calls: list[tuple[str, dict[str, Any]]]
    results: list[dict[str, Any]]
    answer: str
    facts: list[str]
    world_seed: int
    world_split: str
    notes: dict[str, dict[str, Any]] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)


def questions(seed: int, split: str, count: int) -> Iterator[Question]:
    """Yield `count` single-call questions: text, expected tool, expected arguments."""
    for index in range(count):
        yield question(Random(f"{seed}:{split}:{index}"), split)


def seen(count: int) -> Iterator[Question]:
    """Yield questions that are literally in the training data."""
    return questions(TRAIN_SEED, "train", count)


def tasks(seed: int, split: str, count: int, *, low: int = 1, high: int = 6) -> Iterator[Task]:
    """Yield `count` tasks of `low` to `high` calls, spread evenly over the numbers of calls."""
    for index in range(count):
        rng = Random(f"{seed}:task:{split}:{index}")
        steps = low + index % (high - low + 1)
        yield task(rng, split, steps)


def world(task: Task) -> tools.World:
    """A fresh world in which the task's expected calls give its results."""
    return tools.World(task.world_seed, task.world_split)


def question(rng: Random, split: str, tool: str | None = None) -> Question:
    pick = values.Values(rng, _value_split(split))
    name = tool or rng.choice(tools.NAMES)
    phrase = rng.choice(_phrasings(phrases.ASK[name], split))
    said, arguments = _fill(rng, pick, name, phrase)
    return Question(_dress(rng, said), name, arguments)


def task(rng: Random, split: str, steps: int) -> Task:
    """A task whose every step can be done and whose ids all exist."""
    while True:
        made = _try_task(rng, split, steps)
        if not any("error" in result for result in made.results):
            return made


def _try_task(rng: Random, split: str, steps: int) -> Task:
    pick = values.Values(rng, _value_split(split))
    world = tools.World(rng.randrange(2**31), _value_split(split))
    plan = _plan(rng, steps)
    said: list[str] = []
    calls: list[tuple[str, dict[str, Any]]] = []
    results: list[dict[str, Any]] = []
    known: dict[str, Any] = {}
    for name in plan:
        words, arguments = _step(rng, pick, name, split, known)
        result = world.call(name, arguments)
        said.append(words)
        calls.append((name, arguments))
        results.append(result)
        _learn(known, name, result)
    numbered = len(said) > 2 and rng.random() < 0.3
    text = _numbered(rng, said) if numbered else _dress(rng, _join(rng, said))
    sentence = tools.answer(calls[-1][0], results[-1])
    answer = sentence if steps == 1 else f"Done. {sentence}"
    facts = _facts(calls[-1][0], results[-1])
    return Task(
        text, calls, results, answer, facts, world.seed, world.split, world.notes, world.statuses
    )


def _plan(rng: Random, steps: int) -> list[str]:
    """An order of tools, each at most once, in which a step can use what came before."""
    plan = rng.sample(tools.NAMES, steps)
    if steps > 1 and rng.random() < 0.8:
        # the usual story starts at an order
        plan = ["get_order", *rng.sample([n for n in tools.NAMES if n != "get_order"], steps - 1)]
        if "get_customer" in plan and "get_weather" in plan:
            plan.remove("get_weather")
            plan.insert(rng.randint(plan.index("get_customer") + 1, len(plan)), "get_weather")
    return plan


def _step(
    rng: Random, pick: values.Values, name: str, split: str, known: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    given: dict[str, Any] = {}
    if name == "get_customer" and "customer_id" in known:
        given = {"customer_id": known["customer_id"]}
    elif name == "convert_currency" and "total" in known:
        given = {"amount": known["total"], "from_currency": known["currency"]}
    elif name == "get_weather" and "city" in known:
        given = {"city": known["city"]}
    elif name == "update_order" and "order_id" in known:
        given = {"order_id": known["order_id"]}
    elif name == "save_note" and "converted" in known and rng.random() < 0.6:
        given = {"text": known["converted"]}
    if given and rng.random() < 0.9:
        phrase = rng.choice(_phrasings(phrases.FOLLOW_UP[name], split))
        return _fill(rng, pick, name, phrase, given)
    return _fill(rng, pick, name, rng.choice(_phrasings(phrases.ASK[name], split)))


def _learn(known: dict[str, Any], name: str, result: dict[str, Any]) -> None:
    if name == "get_order":
        known.update({key: result.get(key) for key in
                      ("order_id", "customer_id", "total", "currency")})  # fmt: skip
    elif name == "get_customer":
        known["city"] = result.get("city")
    elif name == "convert_currency":
        known["converted"] = f"{result.get('amount')} {result.get('currency')}"


def _facts(name: str, result: dict[str, Any]) -> list[str]:
    keys = {
        "get_order": ("total", "currency", "status"), "get_customer": ("name", "city"),
        "convert_currency": ("amount", "currency"), "get_weather": ("temperature", "sky"),
        "save_note": ("saved",), "update_order": ("status",),
    }  # fmt: skip
    return [str(result[key]) for key in keys[name] if key in result]


def _fill(
    rng: Random, pick: values.Values, name: str, phrase: str, given: dict[str, Any] | None = None
) -> tuple[str, dict[str, Any]]:
    """Put values into a phrase; the arguments come in the order of the schema."""
    arguments: dict[str, Any] = {}
    slots: dict[str, str] = {}
    required = tools.schema(name)["required"]
    for key in tools.schema(name)["properties"]:
        slots[key] = ""
        if given and key in given:
            arguments[key] = given[key]
        elif key in required:
            arguments[key], slots[key] = _required(rng, pick, key)
        elif rng.random() < 0.35:
            arguments[key], slots[key] = _optional(rng, pick, key)
    return phrase.format(**slots), arguments


def _required(rng: Random, pick: values.Values, key: str) -> tuple[Any, str]:
    if key == "status":
        status = rng.choice(tools.STATUSES)
        return status, status
    if key == "amount":
        text = pick.amount()
        return values.number(text), text
    maker = "currency" if key.endswith("_currency") else key
    text = getattr(pick, maker)()
    return text, text


def _optional(rng: Random, pick: values.Values, key: str) -> tuple[Any, str]:
    if key == "notify":
        yes = rng.random() < 0.6
        return yes, rng.choice(phrases.OPTIONAL["yes" if yes else "no"])
    value: Any
    if key == "unit":
        value = said = rng.choice(tools.UNITS)
    elif key == "days":
        value = rng.randint(1, 14)
        said = str(value)
    else:
        value = list(dict.fromkeys(pick.tag() for _ in range(rng.choice([1, 1, 2, 2, 3]))))
        said = '", "'.join(value) if len(value) < 3 or rng.random() < 0.5 else '" and "'.join(value)
    return value, rng.choice(phrases.OPTIONAL[key]).replace("{" + key + "}", said)


def _dress(rng: Random, said: str) -> str:
    """An opening, an ending, at times a sentence before: the same request as people put it."""
    opening = rng.choice(phrases.OPENINGS)
    said = opening + said if opening else said[0].upper() + said[1:]
    said += rng.choice(phrases.ENDINGS)
    asks = opening.endswith("you ") and rng.random() < 0.5
    said += "?" if asks else rng.choice(["", ".", "."])
    if rng.random() < 0.12:
        said = f"{rng.choice(phrases.PREAMBLES)} {said}"
    return said


def _join(rng: Random, said: list[str]) -> str:
    text = said[0]
    for words in said[1:]:
        separator_after = rng.choice(phrases.JOINTS)
        text += separator_after + words
    return text


def _numbered(rng: Random, said: list[str]) -> str:
    head = rng.choice(["Do these steps:", "Please do this:", "Work through this list:", "Steps:"])
    style = rng.choice(["{}. ", "{}) ", "Step {}: "])
    lines = [style.format(i + 1) + s[0].upper() + s[1:] + "." for i, s in enumerate(said)]
    return "\n".join([head, *lines])


def _phrasings(group: dict[str, list[str]], split: str) -> list[str]:
    return group["held_out" if split == "rephrased" else "train"]


def _value_split(split: str) -> str:
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}")
    return "train" if split == "train" else "held_out"
