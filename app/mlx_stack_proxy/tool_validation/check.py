"""Check one tool call against the tools of its request, and mend it where one reading is certain.

    tools = tool_set(body["tools"])
    checked = check_call("search", '{"query": "x",}', tools, Options())

A valid call comes back byte for byte. An invalid one is mended by the rules of ``repair`` if the
result passes every check; else it comes back unchanged, and ``failures`` says what is wrong. A
reply's text is checked against its request's ``response_format`` in the same way. The public
functions are pure and never raise, whatever a model wrote or a client declared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from ..engine.verdicts import CallFailure
from ..frozen import frozen
from ..wire.call import Call
from ..wire.json_reader import parse, parse_unexplained
from ..wire.json_text import MAX_CHARS, Unreadable, write
from ..wire.thoughts import after_thoughts
from . import explain
from .names import MAX_NAME
from .repair.shape import Mender
from .repair.text import RepairedText, read
from .repair.wrapping import copied_keywords, framed, unwrap
from .schemas import CompiledSchema, compile_schema
from .text_calls import rescue
from .tools import ToolSet

FORMAT: Final = "response_format"  # stands for the tool's name in failures of a reply's text
MAX_MENDED: Final = 250_000  # characters; a larger broken text is not mended
MAX_FAILURES: Final = 5  # reported for one call
MAX_EXPLAINED: Final = 20_000  # characters; for a larger text only one failure is reported


@frozen
class Options:
    """Which checks and repairs run, from the settings in ``tool_validation``."""

    validate_json: bool = True
    validate_schema: bool = True
    validate_tool_names: bool = True
    repair: bool = True
    off: frozenset[str] = frozenset()  # names of repair rules that are switched off


@frozen
class Checked:
    """One call, or a reply's text, after its check; it may be delivered if nothing failed."""

    name: str
    arguments: str  # the text as it came, unless `repairs` names the rules that changed it
    repairs: tuple[str, ...] = ()  # names of the rules that were applied
    failures: tuple[CallFailure, ...] = ()  # each names the tool as the model wrote it
    unchecked: bool = False  # accepted, though to check all of its schema would cost too much


DEFAULT_OPTIONS: Final = Options()
# What models send in place of an object when a call has no arguments.
_NONE: Final = frozenset({"", "null", "None", "[]", '""'})
_WORDS: Final = re.compile(r"[\w$.-]+")


def check_call(
    name: str, arguments: str, tools: ToolSet, options: Options = DEFAULT_OPTIONS
) -> Checked:
    """Check one call, and mend it if it has exactly one sensible reading.

    Takes time linear in the size of ``arguments``. Never raises.
    """
    tool = name = name if isinstance(name, str) else ""
    is_known = name in tools or not options.validate_tool_names
    if is_known and isinstance(arguments, str):
        unchanged = Checked(name, arguments)
        if (checked := _as_it_came(unchanged, name, tools.compiled(name), options)) is not None:
            return checked
    original = text = _as_text(arguments)
    rules = ["arguments_not_text"] if text and text is not arguments else []
    if not is_known and options.repair:
        if (call := _written_in_the_name(name, text, tools)) is not None:
            tool, text = call.name, call.arguments
            rules.append("name_markup")
        elif (resolved := tools.resolve(name)) is not None:
            tool = resolved[0]
            rules += resolved[1]
        is_known = tool in tools
    check = _Check(name, tool, tools.compiled(tool), options, rules)
    if not is_known:
        check.fail("unknown_tool", explain.unknown_tool(name, tools.names))
    return check.checked(tool, original, check.mended(text))


def check_response_format(
    text: str, response_format: Mapping[str, Any], options: Options = DEFAULT_OPTIONS
) -> Checked:
    """Check a reply's text against the request's ``response_format``, and mend it like a call.

    ``json_object`` asks for any object, ``json_schema`` for a value that fits its schema; other
    types are not checked. The result has the text as its ``arguments``. Never raises.
    """
    kind = response_format.get("type") if isinstance(response_format, Mapping) else None
    if kind not in ("json_object", "json_schema") or not options.validate_json:
        return Checked(FORMAT, text)
    schema = compile_schema(raw_schema(response_format), whole_object=False)
    if (checked := _as_it_came(Checked(FORMAT, text), None, schema, options)) is not None:
        return checked
    check = _Check(FORMAT, None, schema, options)
    answer = after_thoughts(text) if options.repair else text
    if answer is not text:
        check.rules.append("leading_text")
    return check.checked(FORMAT, text, check.mended(answer))


def is_wanted(text: str, response_format: object, options: Options) -> bool:
    """Whether the text fits the request's ``response_format`` schema, so that it is no call."""
    if not isinstance(response_format, dict) or response_format.get("type") != "json_schema":
        return False
    json_schema = response_format.get("json_schema")
    if not isinstance(json_schema, dict) or not json_schema.get("schema"):
        return False
    answer, options = after_thoughts(text), replace(options, repair=False)
    return not check_response_format(answer, response_format, options).failures


def raw_schema(response_format: object) -> object:
    """Return the schema that a ``response_format`` asks for, as the client sent it."""
    kind = response_format.get("type") if isinstance(response_format, Mapping) else None
    if not isinstance(response_format, Mapping) or kind != "json_schema":
        return {"type": "object"} if kind == "json_object" else None
    json_schema = response_format.get("json_schema")
    return json_schema.get("schema") if isinstance(json_schema, Mapping) else None


def _as_it_came(
    unchanged: Checked, tool: str | None, schema: CompiledSchema, options: Options
) -> Checked | None:
    """Accept the text unchanged if it passes the checks that are switched on; else return None.

    ``tool`` is None for a reply's text.
    """
    try:
        value = parse_unexplained(unchanged.arguments)
    except (Unreadable, ValueError):
        return None if options.validate_json else unchanged
    if tool is not None and not isinstance(value, dict):
        return None if options.validate_json else unchanged
    if options.validate_schema and not schema.is_checkable(value):
        return replace(unchanged, unchecked=True)
    if not _is_good(value, tool, schema, options):
        return None
    return replace(unchanged, unchecked=True) if schema.skips_patterns else unchanged


def _is_good(value: Any, tool: str | None, schema: CompiledSchema, options: Options) -> bool:
    """Whether a parsed value fits its schema and is not wrapped, as far as that is checked."""
    if options.validate_schema and not schema.accepts(value):
        return False
    if tool is None or not options.repair:
        return True
    if copied_keywords(value, schema.raw, schema.declared):
        return False
    if framed(value, schema.frames) is not None:
        return False
    unwrapped = unwrap(value, tool, schema.declared)
    return unwrapped is None or not unwrapped.sure


def _written_in_the_name(name: str, text: str, tools: ToolSet) -> Call | None:
    """Read a call in GLM's tags that a server has put into the name as a whole."""
    if "<arg_key>" not in name or text.strip() not in ("", "{}"):
        return None
    rescued = rescue(f"<tool_call>{name}", tools)
    return rescued.calls[0] if len(rescued.calls) == 1 and not rescued.content.strip() else None


def _as_text(arguments: object) -> str:
    """Return the arguments as text: some servers leave them out, or send the object itself."""
    if isinstance(arguments, str):
        return arguments
    try:
        return "" if arguments is None else orjson.dumps(arguments).decode()
    except (TypeError, ValueError, RecursionError):
        return str(arguments)[: MAX_CHARS + 1]


@dataclass(slots=True)
class _Check:
    """The repair and the failures of one text that failed the quick check."""

    name: str  # the tool's name in failures
    tool: str | None  # the tool that the model means; None for a reply's text
    schema: CompiledSchema
    options: Options
    rules: list[str] = field(default_factory=list)  # names of the repairs so far
    failures: list[CallFailure] = field(default_factory=list)

    def fail(self, kind: str, error: str, field: str = "") -> None:
        self.failures.append(CallFailure(self.name[:MAX_NAME], kind, error, field=field))

    def checked(self, name: str, original: str, mended: str | None) -> Checked:
        """Return the call of ``name`` with ``mended`` arguments, or as it came with failures."""
        if mended is None or self.failures or not self.options.off.isdisjoint(self.rules):
            return Checked(self.name, original, (), tuple(self.failures[:MAX_FAILURES]))
        return Checked(name, mended, tuple(dict.fromkeys(self.rules)))

    def mended(self, text: str) -> str | None:
        """Return the arguments to deliver; None, with a failure noted, if they can't be read."""
        try:
            if self.tool is not None and text.strip() in _NONE:
                if self.options.repair and not self.failures and self.schema.accepts({}):
                    self.rules.append("empty_arguments")
                    return "{}"
                if not self.options.validate_json or not self.schema.required:
                    raise Unreadable("invalid_json", "are empty; send {} if there are none")
                self._explain({}, "")
                return None
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
            subject = f'arguments of function "{tool}"' if tool else "reply's contents"
            self.fail(error.kind, f"the {subject} {error.message}")
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
        """Unwrap ``value`` and mend it along its schema."""
        if self.tool is not None:
            unwrapped = unwrap(value, self.tool, self.schema.declared)
            if unwrapped is not None and (unwrapped.sure or not self.schema.accepts(value)):
                self.rules.append("wrapped_arguments")
                value = unwrapped.inner
            elif (text := framed(value, self.schema.frames)) is not None:
                self.rules.append("wrapped_arguments")
                value = text
            if copies := copied_keywords(value, self.schema.raw, self.schema.declared):
                self.rules.append("schema_keyword")
                value = {key: item for key, item in value.items() if key not in copies}
        if not self.options.validate_schema:
            return value
        mender = Mender()
        mended = mender.mend(value, self.schema.schema)
        if self.tool is not None and not isinstance(mended, dict):
            return value  # the schema wants a list, but arguments must be an object
        self.rules += mender.rules
        return mended

    def _explain(self, value: Any, text: str) -> None:
        """Note a failure for each schema error of a readable value; none if it passes."""
        if self.options.validate_schema:
            limit = MAX_FAILURES if len(text) <= MAX_EXPLAINED else 1
            tool = explain.shortened(self.tool or "")
            for error in self.schema.errors(value, limit):
                kind, sentence = explain.schema_error(error, tool, self.schema.declared)
                self.fail(kind, sentence, explain.field_of(error))


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
    """Whether an inner object has a member that the outermost lacks, so that it may belong there.

    ``{"a": {"x": 1, "b": 2}`` may have been meant as ``{"a": {"x": 1}, "b": 2}``.
    """
    if isinstance(value, dict):
        return not lacking.isdisjoint(value) or any(
            _holds(item, lacking) for item in value.values()
        )
    return isinstance(value, list) and any(_holds(item, lacking) for item in value)
