"""Training dialogues: questions and tasks with calls, results, corrections, hints and chat."""

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar

from demo_tiers import phrases, questions, system_prompts, tools, values, weaken

Message = dict[str, Any]


@dataclass
class Dialogue:
    """Messages, the tools offered, and which assistant turns (counted from 0) are learnt."""

    messages: list[Message] = field(default_factory=list)
    offered: list[dict[str, Any]] = field(default_factory=list)
    learnt: set[int] = field(default_factory=set)
    endless: bool = False  # the last reply has no end

    def say(self, role: str, content: str | None, **more: Any) -> None:
        self.messages.append({"role": role, "content": content, **more})

    def reply(self, content: str, learn: bool = True) -> None:
        turn = sum(message["role"] == "assistant" for message in self.messages)
        self.say("assistant", content)
        if learn:
            self.learnt.add(turn)


@dataclass
class Mix:
    """Shares of what a stage of the training sees."""

    drill: float = 0.0
    copying: float = 0.06
    bare: float = 0.08  # chat without any tools
    tasks: float = 0.3
    chat: float = 0.12
    long: float = 0.08
    corrected: float = 0.1
    earlier: float = 0.3  # exchanges before the one that matters
    weak: bool = False


class Writer:
    """Writes dialogues, each as the random numbers and the mix will have it."""

    seen: ClassVar[list[questions.Question]] = list(questions.seen(1000))

    def __init__(self, rng: Random, mix: Mix, words: list[str]) -> None:
        self.rng = rng
        self.mix = mix
        self.words = words
        self.pick = values.Values(rng, "train")
        self.separators = (",", ":") if rng.random() < 0.25 else None

    def dialogue(self) -> Dialogue:
        rng, made = self.rng, Dialogue()
        kind = rng.random()
        if kind < self.mix.copying:
            self._copying(made)
            return made
        if kind < self.mix.copying + self.mix.bare:
            self._bare(made)
            return made
        self._offer(made)
        is_long = rng.random() < self.mix.long
        self._system(made, is_long)
        before = rng.choice([1, 2, 3, 4]) if rng.random() < self.mix.earlier else 0
        before += rng.choice([0, 1, 3, 5]) if is_long else 0
        for _ in range(before):
            self._segment(made, whole=True)
            if made.endless:
                return made
        self._segment(made, whole=rng.random() < 0.4)
        return made

    def _offer(self, made: Dialogue) -> None:
        made.offered = list(tools.TOOLS)
        if self.rng.random() < 0.35:
            made.offered = self.rng.sample(tools.TOOLS, self.rng.randint(1, 6))
        elif self.rng.random() < 0.3:
            self.rng.shuffle(made.offered)

    def _system(self, made: Dialogue, is_long: bool) -> None:
        if is_long:
            made.say("system", system_prompts.long(self.rng, self.words, self.rng.randint(10, 60)))
        elif self.rng.random() < 0.6:
            made.say("system", system_prompts.short(self.rng))
        elif self.rng.random() < 0.15:
            made.say("system", system_prompts.long(self.rng, self.words, self.rng.randint(2, 9)))

    def _segment(self, made: Dialogue, whole: bool) -> None:
        kind = self.rng.random()
        if kind < self.mix.chat:
            self._chat(made)
        elif kind < self.mix.chat + self.mix.tasks:
            self._task(made)
        else:
            self._question(made, whole)

    def _copying(self, made: Dialogue) -> None:
        """Say it again: what calls are made of, learnt on its own."""
        for _ in range(self.rng.randint(1, 4)):
            makers = ["order_id", "customer_id", "amount", "city", "path", "text", "tag"]
            said = getattr(self.pick, self.rng.choice(makers))()
            if self.rng.random() < 0.2:
                said = " ".join(self.rng.choices(self.words, k=self.rng.randint(2, 10)))
            made.say("user", f'{self.rng.choice(["Repeat", "Say", "Copy"])} "{said}"')
            made.reply(f'"{said}"')

    def _bare(self, made: Dialogue) -> None:
        """Chat of a client that offers no tools."""
        if self.rng.random() < 0.4:
            self._system(made, is_long=False)
        for _ in range(self.rng.randint(1, 3)):
            if self.rng.random() < 0.15:
                made.say("user", self.rng.choice(phrases.ABILITIES))
                made.reply("I can only chat.")
            else:
                said, answer = self.rng.choice(phrases.CHAT)
                made.say("user", said)
                made.reply(answer)

    def _chat(self, made: Dialogue) -> None:
        kind = self.rng.random()
        if kind < 0.5:
            said, answer = self.rng.choice(phrases.CHAT)
            made.say("user", said)
            made.reply(answer)
        elif kind < 0.6:
            made.say("user", self.rng.choice(phrases.ABILITIES))
            does = [phrases.DOES[tool["function"]["name"]] for tool in made.offered]
            made.reply(f"I can {', '.join(does)}." if does else "I can only chat.")
        else:
            names = [tool["function"]["name"] for tool in made.offered]
            lacking = [name for name in tools.NAMES if name not in names]
            if not lacking:
                lacking = [self.rng.choice(tools.NAMES)]
                kept = [t for t in made.offered if t["function"]["name"] != lacking[0]]
                if _has_called(made):
                    return
                made.offered = kept
            name = self.rng.choice(lacking)
            made.say("user", questions.question(self.rng, "train", name).text)
            made.reply(f"I have no tool to {phrases.DOES[name]}.")

    def _question(self, made: Dialogue, whole: bool) -> None:
        names = [tool["function"]["name"] for tool in made.offered]
        names += [name for name in ("save_note", "update_order") if name in names]  # the hard ones
        name = self.rng.choice(names)
        asked = questions.question(self.rng, "train", name)
        if len(made.offered) == len(tools.TOOLS) and self.rng.random() < 0.2:
            asked = self.rng.choice(self.seen)
        name = asked.tool
        made.say("user", asked.text)
        if not self._call(made, name, asked.arguments, asked.text) or not whole:
            return
        world = tools.World(self.rng.randrange(2**31), "train")
        result = world.call(name, asked.arguments)
        if self.rng.random() < 0.03:
            reason = " ".join(self.rng.choices(self.words, k=self.rng.randint(2, 6)))
            result = {"error": reason}
        self._result(made, result)
        course = self._round(made, name, asked.arguments, asked.text, result)
        if course != "again":
            made.reply(tools.answer(name, result), learn=course != "left")

    def _task(self, made: Dialogue) -> None:
        if len(made.offered) < 6:
            if _has_called(made):
                return self._question(made, True)
            made.offered = list(tools.TOOLS)
        task = questions.task(self.rng, "train", self.rng.choice([2, 2, 3, 3, 4, 5, 6]))
        made.say("user", task.text)
        if self.mix.weak:
            return self._weak_task(made, task)
        for (name, arguments), result in zip(task.calls, task.results, strict=True):
            self._call(made, name, arguments, task.text)
            self._result(made, result)
            self._round(made, name, arguments, task.text, result)
        return made.reply(task.answer)

    def _weak_task(self, made: Dialogue, task: questions.Task) -> None:
        """One turn, anywhere, as the weak tier does it; the others rightly.

        Where it has a habit, a turn is learnt only if it is that one, or going on rightly after a
        failure would teach it out of the habit.
        """
        chosen = self.rng.randint(0, len(task.calls))
        for place in range(len(task.calls) + 1):
            here, course = place == chosen, ""
            before = task.calls[place - 1] if place else None
            if before and here:
                course = self._round(made, *before, task.text, task.results[place - 1])
                if course == "again":
                    return
            invited = before and weaken.invites_repeat(task.text, before[0])
            learn = here or not invited
            if place == len(task.calls):
                return made.reply(task.answer, learn and course != "left")
            name, arguments = task.calls[place]
            learn = learn and (here or not weaken.habit(task.text, name)) and course != "left"
            fails = here and learn and course != "told"
            if not self._call(made, name, arguments, task.text, learn=learn, fails=fails):
                return
            if course == "told":
                return  # the hint is gone from the next request
            self._result(made, task.results[place])

    def _result(self, made: Dialogue, result: dict[str, Any]) -> None:
        made.say("tool", json.dumps(result, ensure_ascii=False, separators=self.separators))

    def _call(
        self,
        made: Dialogue,
        name: str,
        arguments: dict[str, Any],
        asked: str,
        *,
        learn: bool = True,
        fails: bool = True,
    ) -> bool:
        """One call turn, at times after a failed attempt and a correction. False ends the talk.

        ``fails``: it may be a failure, if the tier is the weak one.
        """
        corrected = self.rng.random() < self.mix.corrected
        if corrected:
            self._correction(made, name, arguments)
        failure = None
        if self.mix.weak and fails:
            failure = weaken.outcome(self.rng, asked, name, corrected)
        if failure is None:
            made.reply(weaken.good(name, arguments), learn)
            return True
        text, made.endless = weaken.broken(self.rng, failure, name, arguments)
        made.reply(text)
        return False

    def _correction(self, made: Dialogue, name: str, arguments: dict[str, Any]) -> None:
        rng = self.rng
        kind = rng.choice(weaken.KINDS)
        bad, _ = weaken.broken(rng, kind, name, arguments)
        bad = bad[:400]
        text = correction(rng, name, [tool["function"]["name"] for tool in made.offered])
        place = rng.random()
        if place < 0.15 and bad:
            text = f"{text}\n\nYour previous response was:\n{bad}"
        elif place < 0.4:
            made.reply(bad, learn=False)
            if rng.random() < 0.3:
                made.say("tool", json.dumps({"error": "invalid tool call"}))
        if made.messages[-1]["role"] == "user" and rng.random() < 0.6:
            made.messages[-1]["content"] += "\n\n" + text
        else:
            made.say("user", text)

    def _round(
        self, made: Dialogue, name: str, arguments: dict[str, Any], asked: str, result: Any
    ) -> str:
        """The same call again although its result is there.

        Empty: it isn't made; "again": it is made, and that ends the talk; "told": it was made, and
        a hint follows; "left": it was made, and then left, as the transcript shows it later, when
        the hint isn't in it any more.
        """
        rng, weak = self.rng, self.mix.weak
        invited = weak and weaken.invites_repeat(asked, name)
        if rng.random() >= (0.65 if invited else 0.12 if weak else 0.04):
            if not weak or rng.random() >= weaken.repeat_chance(asked, name):
                return ""
            made.reply(weaken.good(name, arguments))
            return "again"
        laps = rng.choice([1, 1, 1, 2, 3, 4]) if weak else rng.randint(1, 4)
        for _ in range(laps):
            made.reply(weaken.good(name, arguments), learn=False)
            self._result(made, result)
        kind = rng.random() if weak else 1.0
        if kind < weaken.ROUND_AGAIN:
            made.reply(weaken.good(name, arguments))
            return "again"
        if kind < weaken.ROUND_AGAIN + weaken.ROUND_LEFT:
            return "left"
        made.say("user", hint(rng, name, laps + 1))
        return "told"


def _has_called(made: Dialogue) -> bool:
    return any(m["role"] == "assistant" and "{" in m["content"] for m in made.messages)


def correction(rng: Random, name: str, offered: list[str]) -> str:
    """What a proxy or an agent says after an invalid call."""
    argument = rng.choice(list(tools.schema(name)["properties"]))
    wrong = rng.choice(weaken.WRONG_NAMES[name])
    error = rng.choice([
        f'missing required field "{argument}" in function "{name}"',
        f'unknown function "{wrong}"',
        f'there is no tool named "{wrong}"',
        f'field "{argument}" in function "{name}" has the wrong type',
        f'unexpected field "reason" in function "{name}"',
        f'"{argument}" of "{name}" must be a string, not an array',
        f'"{argument}" of "{name}" is not one of the allowed values',
        "invalid JSON: expecting ',' delimiter at character 45",
        "invalid JSON: unexpected end of input",
        "the arguments are not valid JSON",
        "the tool call was cut off",
        "the response was empty",
        "the tool call was written as text",
    ])  # fmt: skip
    head = rng.choice(["Your previous response contained an invalid tool call.",
                       "Your previous response contained an invalid tool call.",
                       "Your previous response was not valid.",
                       "The last tool call failed."])  # fmt: skip
    parts = [f"{head} The error was:", f"{error}."]
    if rng.random() < 0.9:
        parts.append("You must respond with valid JSON matching the tool schema exactly.")
    if rng.random() < 0.9:
        parts.append(f"Available tools: {', '.join(offered)}.")
    return "\n".join(parts)


def hint(rng: Random, name: str, times: int) -> str:
    """What a proxy says when a call repeats."""
    said = "twice" if times == 2 and rng.random() < 0.7 else f"{times} times"
    called = f"You have called {name} with the same arguments {said} and got the same result."
    return rng.choice([
        f"{called} Do not call it again: use the result you have.",
        f"{called} Do not call it again: take the next step, or answer with what you know.",
        f"{called} Do not call it again: answer the user.",
        f"{called} Do not call it again: use the result you have, call something else, or answer "
        f"with what you know.",
        f"{called} Do not call it again: use the result you have, call something else, or answer "
        f"with what you know.",
        f"You are repeating yourself. {name} was called {said}. Go on with the next step "
        f"or give the final answer.",
    ])  # fmt: skip
