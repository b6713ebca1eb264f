"""Check one tool call against the tools of its request, and mend it where one reading is certain.

    tools = tool_set(body["tools"])
    checked = check_call("search", '{"query": "x",}', tools, Options())

A valid call comes back byte for byte. An invalid one is repaired by the rules of ``repair`` if the
result passes every check; else it comes back unchanged, and ``failures`` says what is wrong. A
reply's text is checked against its request's ``response_format`` in the same way. The public
functions are pure and never raise, whatever a model wrote or a client declared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from msgspec import Struct
from msgspec.structs import replace

from ..engine.verdicts import CallFailure
from ..wire.call import Call
from ..wire.json_reader import parse
from ..wire.json_text import MAX_CHARS, Unreadable, write
from ..wire.thoughts import after_thoughts
from . import explain
from .names import MAX_NAME
from .repair.text import RepairedText, read
from .repair.values import Mender
from .repair.wrapping import unwrapped
from .schemas import CompiledSchema, compile_schema
from .text_calls import rescue
from .tools import ToolSet

FORMAT: Final = "response_format"  # takes the tool's name in failures of a reply's text
MAX_MENDED: Final = 250_000  # characters; a larger broken text is not repaired
MAX_FAILURES: Final = 5  # reported for one call
MAX_EXPLAINED: Final = 20_000  # characters; for a larger text only one failure is reported


class Options(Struct, frozen=True):
    """Which checks and repairs run, from the settings in ``tool_validation``."""

    validate_json: bool = True
    validate_schema: bool = True
    validate_tool_names: bool = True
    repair: bool = True
    off: frozenset[str] = frozenset()  # names of repair rules that are switched off


class Checked(Struct, frozen=True):
    """The result for one call or a reply's text, which may be delivered if nothing failed."""

    name: str
    arguments: str  # the original text, unless `repairs` names the rules that changed it
    repairs: tuple[str, ...] = ()  # names of the rules that were applied
    failures: tuple[CallFailure, ...] = ()  # each has the tool's name as the model wrote it
    unchecked: bool = False  # accepted, because checking all of its schema would cost too much


DEFAULT_OPTIONS: Final = Options()
# What models send instead of an object when a call has no arguments.
_EMPTY_ARGUMENTS: Final = frozenset({"", "null", "None", "[]", '""'})
_WORDS: Final = re.compile(r"[\w$.-]+")


def check_call(
    name: str, arguments: str, tools: ToolSet, options: Options = DEFAULT_OPTIONS
) -> Checked:
    """Check one call, and repair it if it has exactly one sensible reading.

    Takes time linear in the size of ``arguments``. Never raises.
    """
    tool = name = name if isinstance(name, str) else ""
    original = text = _as_text(arguments)
    rules = ["arguments_not_text"] if text and text is not arguments else []
    unknown: list[CallFailure] = []
    if name not in tools and options.validate_tool_names:
        if options.repair and (call := _call_in_name(name, text, tools)) is not None:
            tool, text = call.name, call.arguments
            rules.append("name_markup")
        elif options.repair and (resolved := tools.resolve(name)) is not None:
            tool = resolved[0]
            rules += resolved[1]
        if tool not in tools:
            error = explain.unknown_tool(name, tools.names)
            unknown.append(CallFailure(name[:MAX_NAME], "unknown_tool", error))
    check = _Check(name, tool, tools.compiled(tool), options, rules, unknown)
    return check.run(text, original)


def check_response_format(
    text: str, response_format: Mapping[str, Any], options: Options = DEFAULT_OPTIONS
) -> Checked:
    """Check a reply's text against the request's ``response_format``; repair it like a call.

    ``json_object`` asks for any object, ``json_schema`` for a value that fits its schema; other
    types are not checked. The result has the text as its ``arguments``. Never raises.
    """
    kind = response_format.get("type") if isinstance(response_format, Mapping) else None
    if kind not in ("json_object", "json_schema") or not options.validate_json:
        return Checked(FORMAT, text)
    schema = compile_schema(raw_schema(response_format), whole_object=False)
    strict = _Check(FORMAT, None, schema, replace(options, repair=False)).run(text, text)
    if not strict.failures or not options.repair:
        return strict
    answer = after_thoughts(text)
    rules = [] if answer is text else ["leading_text"]
    return _Check(FORMAT, None, schema, options, rules).run(answer, text)


def is_wanted(text: str, response_format: object, options: Options) -> bool:
    """Whether the text fits the request's ``response_format`` schema, so that it is no call."""
    if not isinstance(response_format, dict) or response_format.get("type") != "json_schema":
        return False
    if not raw_schema(response_format):
        return False
    answer, options = after_thoughts(text), replace(options, repair=False)
    return not check_response_format(answer, response_format, options).failures


def raw_schema(response_format: object) -> object:
    """Return the schema that a ``response_format`` asks for, as the client sent it."""
    match response_format:
        case {"type": "json_object"}:
            return {"type": "object"}
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            return schema
    return None


def _call_in_name(name: str, text: str, tools: ToolSet) -> Call | None:
    """Return a call in GLM's tags that a server has put into the name, or None."""
    if "<arg_key>" not in name or text.strip() not in ("", "{}"):
        return None
    rescued = rescue(f"<tool_call>{name}", tools)
    return rescued.calls[0] if len(rescued.calls) == 1 and not rescued.content.strip() else None


def _as_text(arguments: object) -> str:
    """Return the arguments as text: some servers omit them, or send the object itself."""
    if isinstance(arguments, str):
        return arguments
    try:
        return "" if arguments is None else orjson.dumps(arguments).decode()
    except (TypeError, ValueError, RecursionError):
        return str(arguments)[: MAX_CHARS + 1]


@dataclass(slots=True)
class _Check:
    """One pass over one text: parsed, unwrapped, repaired along its schema, and explained."""

    name: str  # the tool's name in failures
    tool: str | None  # the tool that the model means; None for a reply's text
    schema: CompiledSchema
    options: Options
    rules: list[str] = field(default_factory=list)  # names of the repairs so far
    failures: list[CallFailure] = field(default_factory=list)
    unchecked: bool = False

    def run(self, text: str, original: str) -> Checked:
        """Return the call with its text as delivered, or unchanged with failures."""
        try:
            mended = self._mended(text)
        except Unreadable as error:
            mended = text
            if self.options.validate_json:
                tool = explain.shortened(self.tool or "")
                subject = f'arguments of function "{tool}"' if tool else "reply's contents"
                sentence = f"the {subject} {error.message}"
                self.failures.append(CallFailure(self.name[:MAX_NAME], error.kind, sentence))
        if self.failures or not self.options.off.isdisjoint(self.rules):
            return Checked(self.name, original, (), tuple(self.failures[:MAX_FAILURES]))
        name, rules = self.tool or self.name, tuple(dict.fromkeys(self.rules))
        return Checked(name, mended if rules else original, rules, (), self.unchecked)

    def _mended(self, text: str) -> str:
        """Return the text to deliver; record what is wrong with it, or raise ``Unreadable``."""
        schema, options, is_call = self.schema, self.options, self.tool is not None
        if is_call and options.validate_json and text.strip() in _EMPTY_ARGUMENTS:
            return self._without_arguments()
        repairs = options.repair and len(text) <= MAX_MENDED
        if repairs and options.validate_json:
            reading = read(text, root="{" if is_call else "{[")
            if is_call and reading.rules:
                _check_clear(reading, text, schema)
        else:
            reading = RepairedText(parse(text), (), text)
        value = reading.value
        if is_call and not isinstance(value, dict):
            raise Unreadable("not_an_object", "are not a JSON object")
        self.rules += reading.rules
        valid = not options.validate_schema or schema.accepts(value)
        if repairs and self.tool is not None:
            value, rules = unwrapped(value, self.tool, schema, valid=valid)
            if rules:
                self.rules += rules
                valid = not options.validate_schema or schema.accepts(value)
        if repairs and not valid:
            mender = Mender()
            mended = mender.mend(value, schema.schema)
            # Arguments must be an object, even if the schema wants a list.
            if isinstance(mended, dict) or not is_call:
                value = mended
                self.rules += mender.rules
        if not valid:
            self._explain(value, MAX_FAILURES if len(text) <= MAX_EXPLAINED else 1)
        elif options.validate_schema:
            self.unchecked = schema.skips_patterns or not schema.is_checkable(value)
        as_written = reading.text if value is reading.value else None
        return write(value) if as_written is None else as_written

    def _without_arguments(self) -> str:
        """Return ``{}`` for a call without arguments, if its schema allows that."""
        if self.options.repair and not self.failures and self.schema.accepts({}):
            self.rules.append("empty_arguments")
        elif not (self.schema.required and self.options.validate_schema):
            raise Unreadable("invalid_json", "are empty; send {} if there are none")
        else:
            self._explain({}, MAX_FAILURES)
        return "{}"

    def _explain(self, value: Any, limit: int) -> None:
        """Record a failure for each schema error of a readable value, up to ``limit``."""
        name, tool, declared = self.name[:MAX_NAME], self.tool or "", self.schema.declared
        errors = self.schema.errors(value, limit) if self.options.validate_schema else ()
        self.failures += (explain.schema_error(one, name, tool, declared) for one in errors)


def _check_clear(reading: RepairedText, text: str, schema: CompiledSchema) -> None:
    """Raise ``Unreadable`` if the tool's parameters suggest that there is a second reading."""
    value, rules = reading.value, reading.rules
    if "missing_closer" in rules and _holds(value, schema.declared - value.keys()):
        raise Unreadable("invalid_json", "lack a closing bracket, and it is not clear where")
    if "unescaped_quotes" in rules and not schema.declared >= value.keys():
        raise Unreadable("invalid_json", "hold a quotation mark that is not escaped")
    # The words before an object may name its parameter: `filter: {"a": 1}`.
    inside = bool(value) and value.keys() <= schema.declared
    words = () if inside else _WORDS.findall(text.partition("{")[0])
    if "leading_text" in rules and not schema.declared.isdisjoint(words):
        raise Unreadable("not_an_object", "are not a JSON object")


def _holds(value: Any, lacking: frozenset[str]) -> bool:
    """Whether an inner object has a member that the outermost lacks, where it may belong.

    ``{"a": {"x": 1, "b": 2}`` may have been meant as ``{"a": {"x": 1}, "b": 2}``.
    """
    if isinstance(value, dict):
        return not lacking.isdisjoint(value) or any(
            _holds(item, lacking) for item in value.values()
        )
    return isinstance(value, list) and any(_holds(item, lacking) for item in value)
