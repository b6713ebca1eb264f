"""One tool call of a reply, checked against the tools of its request and mended where that is sure.

    tools = tool_set(body["tools"])
    checked = check_call("search", '{"query": "x",}', tools, Options())

A call that is right comes back byte for byte. One that is not is mended by the rules of `repair`,
if the result passes every check and has lost nothing; else `failures` says what is wrong, and the
call comes back as it came. Everything here is a pure function of its arguments, and none raises,
whatever a model wrote or a client declared.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from ..engine.verdicts import CallFailure
from ..frozen import frozen
from ..wire.json_text import Unreadable, parse, write
from . import explain
from .names import MAX_NAME, resolve
from .repair.loss import keeps_everything
from .repair.shape import Mender
from .repair.text import Reading, read
from .repair.wrapping import unwrap
from .schemas import CompiledSchema, ToolSet, compile_schema
from .text_calls import FoundCall, rescue

MAX_EXPLAINED: Final = 20_000  # characters; of larger arguments one failure is told: all cost more


@frozen
class Options:
    """What is checked and mended (the settings of `tool_validation`), and the caps."""

    validate_json: bool = True
    validate_schema: bool = True
    validate_tool_names: bool = True
    repair: bool = True
    off: frozenset[str] = frozenset()  # repairs that are left out, by name
    max_chars: int = 1_000_000  # of one call's arguments
    max_depth: int = 64  # levels of nesting
    max_mended: int = 250_000  # characters; larger broken arguments are not mended
    max_failures: int = 5  # that are told of one call

    def most_errors(self, text: str) -> int:
        """How many failures are told of arguments or contents of this length."""
        return self.max_failures if len(text) <= MAX_EXPLAINED else 1


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
_ANYTHING: Final = compile_schema(None)


def check_call(
    name: str,
    arguments: str,
    tools: ToolSet,
    options: Options = DEFAULT_OPTIONS,
) -> Checked:
    """Check one call, and mend it where exactly one reading is right.

    Linear in the size of `arguments`; never raises.
    """
    return (
        _as_it_came(name, arguments, tools, options)
        or _Call(name, arguments, tools, options).checked()
    )


def _as_it_came(
    name: object, arguments: object, tools: ToolSet, options: Options
) -> Checked | None:
    """The call as it came, where nothing is wrong with it or nobody wants to know."""
    if not isinstance(name, str) or not isinstance(arguments, str):
        return None
    if name not in tools and options.validate_tool_names:
        return None
    schema = tools.compiled(name) or _ANYTHING
    try:
        value = parse(arguments, max_chars=options.max_chars, max_depth=options.max_depth)
    except Unreadable:
        value = None
    if not isinstance(value, dict):
        return None if options.validate_json else Checked(name, arguments)
    if options.validate_schema and not schema.is_checkable(value):
        return Checked(name, arguments, unchecked=True)
    return Checked(name, arguments) if _is_good(value, name, schema, options) else None


def _is_good(value: dict[str, Any], tool: str, schema: CompiledSchema, options: Options) -> bool:
    """Whether a parsed call passes every check that is switched on."""
    if options.validate_schema and not schema.accepts(value):
        return False
    found = unwrap(value, tool, schema.declared, options.max_depth) if options.repair else None
    return found is None or not found.sure


class _Call:
    """A call that did not pass at first sight: what can be made of it, or what to say of it."""

    def __init__(self, name: str, arguments: str, tools: ToolSet, options: Options) -> None:
        self.name = name if isinstance(name, str) else ""
        self.arguments = arguments
        self.tools = tools
        self.options = options
        self.repair = False  # whether the arguments may be mended
        self.most_errors = options.max_failures
        self.tool = self.name  # the name of the tool that is meant
        self.rules: list[str] = []
        self.failures: list[CallFailure] = []

    def checked(self) -> Checked:
        text, schema = self._named()
        most = min(self.options.max_mended, self.options.max_chars)
        self.repair = self.options.repair and len(text) <= most
        self.most_errors = self.options.most_errors(text)
        mended = self._mended(text, schema)
        if self.failures or not self.options.off.isdisjoint(self.rules):
            mended = None
        if mended is not None:
            return Checked(self.tool, mended, tuple(dict.fromkeys(self.rules)))
        failures = self.failures[: self.options.max_failures]
        return Checked(self.name, self.arguments, (), tuple(failures))

    def _fail(self, kind: str, error: str) -> None:
        self.failures.append(CallFailure(self.name[:MAX_NAME], kind, error))

    def _named(self) -> tuple[str, CompiledSchema]:
        """The arguments' text and the schema of the tool that the name means."""
        text = self._as_text()
        if self.name in self.tools or not self.options.validate_tool_names:
            return text, self.tools.compiled(self.name) or _ANYTHING
        if self.options.repair:
            if (call := self._written_in_the_name(text)) is not None:
                self.tool, text = call.name, call.arguments
                self.rules.append("name_markup")
            elif (resolved := resolve(self.name, self.tools.names)) is not None:
                self.tool, rules = resolved
                self.rules += rules
            if self.tool in self.tools:
                return text, self.tools.compiled(self.tool) or _ANYTHING
        self._fail("unknown_tool", explain.unknown_tool(self.name, self.tools.names))
        return text, _ANYTHING

    def _written_in_the_name(self, text: str) -> FoundCall | None:
        """A call in GLM's tags, of which a server took all for the name."""
        if "<arg_key>" not in self.name or text.strip() not in ("", "{}"):
            return None
        schemas = {name: self.tools.schema(name) or {} for name in self.tools.names}
        found = rescue(f"<tool_call>{self.name}", schemas)
        return found.calls[0] if len(found.calls) == 1 and not found.content.strip() else None

    def _as_text(self) -> str:
        """The arguments as text: some servers leave them out, or send the object itself."""
        given: object = self.arguments
        if isinstance(given, str):
            return given
        try:
            text = "" if given is None else orjson.dumps(given).decode()
        except (TypeError, ValueError, RecursionError):
            text = str(given)[: self.options.max_chars + 1]
        self.arguments = text
        if text:
            self.rules.append("arguments_not_text")
        return text

    def _mended(self, text: str, schema: CompiledSchema) -> str | None:
        """The text that may go out; None, and a failure, where there is none."""
        try:
            if text.strip() in _NONE:
                return self._without_arguments(schema)
            return self._of_readable(text, schema)
        except Unreadable as error:
            if not self.options.validate_json:
                return self.arguments
            tool = explain.shortened(self.tool)
            self._fail(error.kind, f'the arguments of function "{tool}" {error.message}')
            return None

    def _of_readable(self, text: str, schema: CompiledSchema) -> str | None:
        options = self.options
        if not self.repair:
            value = parse(text, max_chars=options.max_chars, max_depth=options.max_depth)
            if not isinstance(value, dict):
                raise Unreadable("not_an_object", "are not a JSON object")
            self._explain(value, schema)
            return text
        reading = read(text, max_depth=options.max_depth)
        _check_clear(reading, text, schema)
        self.rules += reading.rules
        if _is_good(reading.value, self.tool, schema, options):
            return reading.text if reading.text is not None else write(reading.value)
        return self._reshaped(reading.value, schema)

    def _reshaped(self, value: dict[str, Any], schema: CompiledSchema) -> str | None:
        """The arguments with their shape and values mended, where they then pass everything."""
        mended, rules, dropped = _reshape(value, self.tool, schema, self.options)
        if not keeps_everything(value, mended, dropped):  # no rule loses any; this is the proof
            mended, rules = value, []
        self._explain(mended, schema)
        if self.failures:
            return None
        self.rules += rules
        return write(mended)

    def _without_arguments(self, schema: CompiledSchema) -> str | None:
        """Nothing at all is ``{}``, for a tool that needs nothing."""
        if self.repair and not self.failures and schema.accepts({}):
            self.rules.append("empty_arguments")
            return "{}"
        if not self.options.validate_json or not schema.required:
            raise Unreadable("invalid_json", "are empty; send {} for none")
        self._explain({}, schema)
        return None

    def _explain(self, value: dict[str, Any], schema: CompiledSchema) -> None:
        """Note what is wrong with a readable call; nothing, if it passes."""
        options, tool = self.options, explain.shortened(self.tool)
        if options.validate_schema:
            for error in schema.errors(value, self.most_errors):
                self._fail(*explain.schema_error(error, tool, schema.declared))


def _reshape(
    value: dict[str, Any], tool: str, schema: CompiledSchema, options: Options
) -> tuple[dict[str, Any], list[str], list[Any]]:
    """`value` unwrapped and mended along its schema; the rules used, and what was left out."""
    rules: list[str] = []
    dropped: list[Any] = []
    found = unwrap(value, tool, schema.declared, options.max_depth)
    if found is not None and (found.sure or not schema.accepts(value)):
        rules.append("wrapped_arguments")
        dropped += found.beside
        value = found.inner
    mender = Mender(schema.definitions, options.max_depth)
    mended = mender.mend(value, schema.schema) if options.validate_schema else value
    if not isinstance(mended, dict):  # its schema wants a list, and arguments are an object
        return value, rules, dropped
    return mended, [*rules, *mender.rules], [*dropped, *mender.dropped]


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
