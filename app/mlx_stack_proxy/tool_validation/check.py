"""One tool call of a reply, checked against the tools of its request and mended where that is sure.

    tools = tool_set(body["tools"])
    checked = check_call("search", '{"query": "x",}', tools, Options())

A call that is right comes back byte for byte. One that is not is mended by the rules of `repair`,
if the result passes every check; else `failures` says what is wrong, and the call comes back as it
came. A reply's text is checked against its request's `response_format` likewise. Everything here is
a pure function of its arguments, and none raises, whatever a model wrote or a client declared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from ..engine.verdicts import CallFailure
from ..frozen import frozen
from ..wire.json_text import MAX_CHARS, Unreadable, parse, write
from ..wire.thoughts import behind_thoughts
from . import explain
from .names import MAX_NAME
from .repair.shape import Mender
from .repair.text import Reading, read
from .repair.wrapping import unwrap
from .schemas import CompiledSchema, reply_schema
from .text_calls import FoundCall, rescue
from .tools import ToolSet

FORMAT: Final = "response_format"  # what failures of a reply's text name as the tool
MAX_MENDED: Final = 250_000  # characters; larger broken texts are not mended
MAX_FAILURES: Final = 5  # that are told of one call
MAX_EXPLAINED: Final = 20_000  # characters; of a larger text one failure is told: all cost more


@frozen
class Options:
    """What is checked and mended: the settings of `tool_validation`."""

    validate_json: bool = True
    validate_schema: bool = True
    validate_tool_names: bool = True
    repair: bool = True
    off: frozenset[str] = frozenset()  # repairs that are left out, by name


@frozen
class Checked:
    """One call after its check: what may be delivered, if `failures` is empty.

    `arguments` is the very text that came, unless `repairs` names what was done to it. `unchecked`:
    holding it against its schema would cost too much, so it is taken as it is. Each failure names
    the tool as the model wrote it.
    """

    name: str
    arguments: str
    repairs: tuple[str, ...] = ()
    failures: tuple[CallFailure, ...] = ()
    unchecked: bool = False


DEFAULT_OPTIONS: Final = Options()
# What is sent in place of an object by who has nothing to say.
_NONE: Final = frozenset({"", "null", "None", "[]", '""'})
_WORDS: Final = re.compile(r"[\w$.-]+")


def check_call(
    name: str, arguments: str, tools: ToolSet, options: Options = DEFAULT_OPTIONS
) -> Checked:
    """Check one call, and mend it where exactly one reading is right.

    Linear in the size of `arguments`; never raises.
    """
    name = name if isinstance(name, str) else ""
    if isinstance(arguments, str) and (name in tools or not options.validate_tool_names):
        came = Checked(name, arguments)
        if (found := _as_it_came(came, name, tools.compiled(name), options)) is not None:
            return found
    return _mended_call(name, arguments, tools, options)


def check_response_format(
    text: str, response_format: Mapping[str, Any], options: Options = DEFAULT_OPTIONS
) -> Checked:
    """Check a reply's text against the request's `response_format`, and mend it likewise.

    `json_object` asks for any object, `json_schema` for what its schema says; anything else is not
    checked. The text stands in place of a call's arguments. Never raises.
    """
    wanted = response_format.get("type") if isinstance(response_format, Mapping) else None
    if wanted not in ("json_object", "json_schema") or not options.validate_json:
        return Checked(FORMAT, text)
    given = response_format.get("json_schema") if wanted == "json_schema" else None
    raw = given.get("schema") if isinstance(given, Mapping) else None
    schema = reply_schema({"type": "object"} if wanted == "json_object" else raw)
    if (found := _as_it_came(Checked(FORMAT, text), None, schema, options)) is not None:
        return found
    answer = behind_thoughts(text) if options.repair else text
    if answer is not text:
        return _answer_alone(text, check_response_format(answer, response_format, options))
    check = _Check(FORMAT, None, schema, options)
    return check.checked(FORMAT, text, check.mended(text))


def _answer_alone(text: str, answer: Checked) -> Checked:
    """What came of the answer in a text that begins with the model's reasoning."""
    if answer.failures:
        return Checked(FORMAT, text, failures=answer.failures)
    rules = tuple(dict.fromkeys(("leading_text", *answer.repairs)))
    return Checked(FORMAT, answer.arguments, rules, unchecked=answer.unchecked)


def _as_it_came(
    came: Checked, tool: str | None, schema: CompiledSchema, options: Options
) -> Checked | None:
    """What came, where nothing is wrong with it or nobody wants to know.

    `tool`: None for a reply's text.
    """
    try:
        value = parse(came.arguments)
    except Unreadable:
        return None if options.validate_json else came
    if tool is not None and not isinstance(value, dict):
        return None if options.validate_json else came
    if options.validate_schema and not schema.is_checkable(value):
        return Checked(came.name, came.arguments, unchecked=True)
    return came if _is_good(value, tool, schema, options) else None


def _is_good(value: Any, tool: str | None, schema: CompiledSchema, options: Options) -> bool:
    """Whether what was parsed passes every check that is switched on."""
    if options.validate_schema and not schema.accepts(value):
        return False
    if tool is None or not options.repair:
        return True
    found = unwrap(value, tool, schema.declared)
    return found is None or not found.sure


def _mended_call(name: str, arguments: object, tools: ToolSet, options: Options) -> Checked:
    """A call that did not pass at first sight: what can be made of it, or what to say of it."""
    came = text = _as_text(arguments)
    rules = [] if isinstance(arguments, str) or not text else ["arguments_not_text"]
    tool, known = name, name in tools or not options.validate_tool_names
    if not known and options.repair:
        if (call := _written_in_the_name(name, text, tools)) is not None:
            tool, text = call.name, call.arguments
            rules.append("name_markup")
        elif (resolved := tools.resolve(name)) is not None:
            tool = resolved[0]
            rules += resolved[1]
        known = tool in tools
    check = _Check(name, tool, tools.compiled(tool), options, rules)
    if not known:
        check.fail("unknown_tool", explain.unknown_tool(name, tools.names))
    return check.checked(tool, came, check.mended(text))


def _written_in_the_name(name: str, text: str, tools: ToolSet) -> FoundCall | None:
    """A call in GLM's tags, of which a server took all for the name."""
    if "<arg_key>" not in name or text.strip() not in ("", "{}"):
        return None
    found = rescue(f"<tool_call>{name}", tools)
    return found.calls[0] if len(found.calls) == 1 and not found.content.strip() else None


def _as_text(arguments: object) -> str:
    """The arguments as text: some servers leave them out, or send the object itself."""
    if isinstance(arguments, str):
        return arguments
    try:
        return "" if arguments is None else orjson.dumps(arguments).decode()
    except (TypeError, ValueError, RecursionError):
        return str(arguments)[: MAX_CHARS + 1]


@dataclass(slots=True)
class _Check:
    """One text that did not pass at first sight.

    `name`: in failures. `tool`: the tool that is meant; None for a reply's text.
    """

    name: str
    tool: str | None
    schema: CompiledSchema
    options: Options
    rules: list[str] = field(default_factory=list)
    failures: list[CallFailure] = field(default_factory=list)

    def fail(self, kind: str, error: str) -> None:
        self.failures.append(CallFailure(self.name[:MAX_NAME], kind, error))

    def checked(self, name: str, came: str, mended: str | None) -> Checked:
        """The call of `name`, with its arguments mended where that went well."""
        if mended is None or self.failures or not self.options.off.isdisjoint(self.rules):
            return Checked(self.name, came, (), tuple(self.failures[:MAX_FAILURES]))
        return Checked(name, mended, tuple(dict.fromkeys(self.rules)))

    def mended(self, text: str) -> str | None:
        """The text that may go out, where nothing failed."""
        try:
            if self.tool is not None and text.strip() in _NONE:
                return self._without_arguments()
            if self.options.repair and len(text) <= MAX_MENDED:
                return self._repaired(text)
            value = parse(text)
            if self.tool is not None and not isinstance(value, dict):
                raise Unreadable("not_an_object", "are not a JSON object")
            self._explain(value, text)
            return text
        except Unreadable as error:
            if not self.options.validate_json:
                return text
            tool = explain.shortened(self.tool or "")
            given = f'arguments of function "{tool}"' if tool else "reply's contents"
            self.fail(error.kind, f"the {given} {error.message}")
            return None

    def _repaired(self, text: str) -> str | None:
        reading = read(text, root="{[" if self.tool is None else "{")
        if self.tool is not None:
            _check_clear(reading, text, self.schema)
        self.rules += reading.rules
        if _is_good(reading.value, self.tool, self.schema, self.options):
            return reading.text if reading.text is not None else write(reading.value)
        mended = self._reshaped(reading.value)
        self._explain(mended, text)
        return None if self.failures else write(mended)

    def _reshaped(self, value: Any) -> Any:
        """`value` unwrapped, and mended along its schema."""
        if self.tool is not None:
            found = unwrap(value, self.tool, self.schema.declared)
            if found is not None and (found.sure or not self.schema.accepts(value)):
                self.rules.append("wrapped_arguments")
                value = found.inner
        if not self.options.validate_schema:
            return value
        mender = Mender(self.schema.definitions)
        mended = mender.mend(value, self.schema.schema)
        if self.tool is not None and not isinstance(mended, dict):
            return value  # its schema wants a list, and arguments are an object
        self.rules += mender.rules
        return mended

    def _without_arguments(self) -> str | None:
        """Nothing at all is ``{}``, for a tool that needs nothing."""
        if self.options.repair and not self.failures and self.schema.accepts({}):
            self.rules.append("empty_arguments")
            return "{}"
        if not self.options.validate_json or not self.schema.required:
            raise Unreadable("invalid_json", "are empty; send {} for none")
        self._explain({}, "")
        return None

    def _explain(self, value: Any, text: str) -> None:
        """Note what is wrong with a readable value; nothing, if it passes."""
        if self.options.validate_schema:
            most = MAX_FAILURES if len(text) <= MAX_EXPLAINED else 1
            tool = explain.shortened(self.tool or "")
            for error in self.schema.errors(value, most):
                self.fail(*explain.schema_error(error, tool, self.schema.declared))


def _check_clear(reading: Reading, text: str, schema: CompiledSchema) -> None:
    """Raise `Unreadable` where a reading may not be the only one, by what the tool declares."""
    value, rules = reading.value, reading.rules
    if "missing_closer" in rules and _holds(value, schema.declared - value.keys()):
        raise Unreadable("invalid_json", "lack a closing bracket, and it is not clear where")
    if "unescaped_quotes" in rules and not schema.declared >= value.keys():
        raise Unreadable("invalid_json", "hold a quotation mark that is not escaped")
    if "leading_text" in rules and _is_one_parameter(text, value, schema):
        raise Unreadable("not_an_object", "are not a JSON object")


def _holds(value: Any, lacking: frozenset[str]) -> bool:
    """Whether a member further in may be one that the whole lacks: its object was to end before.

    ``{"a": {"x": 1, "b": 2}`` may have been ``{"a": {"x": 1}, "b": 2}``.
    """
    if isinstance(value, dict):
        return not lacking.isdisjoint(value) or any(_holds(one, lacking) for one in value.values())
    return isinstance(value, list) and any(_holds(one, lacking) for one in value)


def _is_one_parameter(text: str, value: dict[str, Any], schema: CompiledSchema) -> bool:
    """Whether what stands before an object says which parameter it is: ``filter: {"a": 1}``."""
    if value and value.keys() <= schema.declared:
        return False
    return not schema.declared.isdisjoint(_WORDS.findall(text.partition("{")[0]))
