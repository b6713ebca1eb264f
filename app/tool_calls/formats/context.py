"""Whether a call may begin at a place: not in quotes, inline code, quoted lines, or an example."""

from __future__ import annotations

import enum
import re

from app.tool_calls.formats.base import Where

from ...frozen import frozen

# How much of the text before a place is looked at. The same for a whole text and for a stream.
WINDOW = 400
# How far ahead the backtick that closes inline code may be.
_AHEAD = 1_000

_QUOTES = {
    '"': '"',
    "'": "'",
    "“": "”",
    "‘": "’",
    "«": "»",
    "「": "」",
    "『": "』",
    "`": "`",
    "\\": "\n",
}
_BEFORE_QUOTE = " \t\n([{:=,>*_–—-"
_BACKTICKS = re.compile(r"`+")
_INSIDE_JSON = re.compile(r"(?:[\[{(]|[\"'\]}\d]\s*,|[\"']\s*:)\s*\Z")
# Before a bare value in the middle of a line: the end of a sentence, a colon, a tag; also in bold.
_BEFORE_JSON = re.compile(r"(?:^|[.:!?>\]▷]\*{0,2}|;\s)\s*\Z")
_IN_SENTENCE = re.compile(r"[\w,]\s+\Z")
_SENTENCE_GOES_ON = re.compile(r"[ \t]+[a-z]|[ \t]*[,.:;)](?:\s|\Z)")
# "and London:" announces the next call.
_GOES_ON_BELOW = re.compile(
    r"[ \t]*\n\s*(?:and|or|but|which|that|where|who|you)\b(?![^\n]*:[ \t]*(?:\n|\Z))"
)
# Between two examples of one list.
_BETWEEN = re.compile(r"\s*(?:(?:and|or|und|oder|et|ou|y|o|和|或)\b\W*)?(?:[-*•]|\d{1,2}[.)])?\s*")
# What is said of the call right behind it: "… is Phi-4's format"; in a list "… – Qwen's".
_SPOKEN_OF = re.compile(r"[ \t]+(?:is|are|was|were|means|would|looks)\b")
_BULLET = re.compile(r"\s*(?:[*•+-]|\d{1,3}[.)])\s*")
_EXPLAINED = re.compile(r"[ \t]+(?:[–—→-]|->|=>)[ \t]")
_TAG = re.compile(r"<(?!/)(?![^<>]*end)[^<>\s]{1,60}>|\[TOOL_(?:CALLS|REQUEST)\]")

# A sentence before a call that says: this is what one looks like.
_EXAMPLE = re.compile(
    r"^\W*for (?:example|instance)\b|\bfor (?:example|instance)\W*$|\be\.g\.\W*$"
    r"|\b(?:here(?:'s| is)|this is|consider|as|show(?:ing)?(?: you)?) (?:an?|one|another)"
    r"(?: \w+)? example\b"
    r"|\bexamples?\s*:\s*$"
    r"|\b(?:you|it|they|he|she|one|models?|assistant|agent|llm) (?:\w+ly |then )?"
    r"(?:would|could|should|might) (?:\w+ly |then |also )?"
    r"(?:write|emit|output|look like|produce|generate|respond|reply|print|call)\b"
    r"|\blooks? (?:something )?like(?: this| the following)?\s*:?\s*$"
    r"|\bsieht (?:\w+ ){0,3}so aus\W*$"
    r"|\bhat (?:diese|folgende)s? (?:form|format|syntax|struktur)\W*$"
    # What was, and what became of it.
    r"|^\W*(?:previously|earlier|before|after|vorher|nachher|avant|après|antes|después)\W*:\W*$"
    r"|\blike (?:this|so|the following)\s*:?\s*$|\b(?:such as|instead of)\s*:?\s*$"
    r"|\b(?:texts?|strings?|repl(?:y|ies)|outputs?|inputs?|lines?|messages?) like\s*:\s*$"
    # A heading of its own: "## Example 2", "**Beispiel:**", "Test fixture:", "Wrong:".
    r"|^\W*(?:\w+ ){0,2}(?:examples?|beispiele?|exemples?|ejemplos?|esemp[io]o?|exemplos?|примеры?)"
    r"(?: \d+)?\W*$"
    r"|^\W*(?:\w+ )?(?:fixture|test case|sample|wrong|incorrect|bad|correct|right|good)\W*:\W*$"
    r"|(?:例如|比如|示例|例子|例|例えば|たとえば|например)\W*$|예(?:를 들어|시)\W*$|예\s*:\s*$"
    # What a model does is told: "The assistant then writes".
    r"|\b(?:models?|assistant|agent|llm) (?:then |also )?"
    r"(?:writes?|emits?|outputs?|prints?|produces?|generates?|responds with|replies with)\b"
    r"|\b(?:never|don't|do not) (?:write|emit|output)\b",
    re.IGNORECASE,
)
# The same, unless the sentence says what is done now: "Let me see what it printed:".
_TOLD = re.compile(
    # What was, or what others did, is told: "Earlier I called:".
    r"\b(?:I|we|you|it|they|users?|models?|assistant|agent|llm)(?:['’]ve| have| had)? (?:\w+ )?"
    r"(?:called|ran|executed|invoked|wrote|emitted|sent|produced|generated|printed|replied with)"
    r"\s*:\s*$"
    r"|(?:\b(?:I|we|you|it|they) (?:\w+ )?(?:called|ran|executed|invoked)"
    r"|ve (?:already )?(?:called|run|made|executed|invoked))"
    r" (?:(?!(?:in|on|to|with|for|from|about)\b)\w+ ){1,4}(?:calls?|tools?|functions?|commands?)"
    r"\s*:\s*$"
    r"|^\W*(?:(?!what\b)[\w'’]+ ){1,3}(?:call|reply|response|output|request|message|step) was"
    r"\s*:\s*$"
    r"|\bit (?:then |also )?"
    r"(?:writes?|emits?|outputs?|prints?|produces?|generates?|responds with|replies with)\b"
    r"|\b(?:syntax|format|template) is\b|(?:\b(?:the|this|that|following|call)|['’]s) (?:\w+ )?"
    r"(?:syntax|format|template)(?: \w+){0,3}\s*:\s*$"
    r"|(?:^\W*|\b(?:is|['’]s|you|show) )how (?:\w+ ){1,3}(?:calls?|requests?)"
    r" (?:would |should |could |might )?looks?(?: like)?\W*$"
    r"|(?:\bexample (?:of an? )?|(?:^\W*(?:\w+ ){0,2}|\b(?:show|give) )examples (?:of )?)"
    r"(?:tool |function )?(?:calls?|usage|outputs?|responses?|reply|replies|formats?)\b"
    r"|^\W*(?:usage|syntax|format|expected(?: \w+)?|test case \d+)\W*:\W*$"
    r"|^\s*#.*\b(?:format|syntax|usage)s?\W*$|格式(?:为|是|如下)\W*$",
    re.IGNORECASE,
)
# … and does not say that it is told now: "Let me explain the format:".
_TELLING = re.compile(
    r"\b(?:show|explain|describ|demonstrat|illustrat|tell|repeat|recall|mention|quot)(?:e|ing)?\b"
    r"|\bdocumenting\b|\bgiv(?:e|ing) (?:you|an?|some|examples)\b"
    r"|展示|说明|解释|举",
    re.IGNORECASE,
)
# One of these is in every such sentence: looked for first, as the pattern is slow.
_EXAMPLE_HINTS = (
    "example",
    "exempl",
    "beispiel",
    "ejemplo",
    "esempi",
    "例",
    "比如",
    "格式",
    "たとえば",
    "пример",
    "예",
    "so aus",
    "hat diese",
    "hat folgende",
    "previously",
    "earlier",
    "before",
    "after",
    "vorher",
    "nachher",
    "avant",
    "après",
    "antes",
    "después",
    "how ",
    "expected",
    "usage",
    "executed",
    "invoked",
    " run ",
    " made ",
    " was",
    "fixture",
    "test case",
    "sample",
    "wrong",
    "correct",
    "bad",
    "right",
    "good",
    "called",
    "ran",
    "wrote",
    "sent",
    "replied",
    "instance",
    "e.g.",
    "would",
    "should",
    "could",
    "might",
    "like",
    "such as",
    "instead of",
    "write",
    "emit",
    "output",
    "print",
    "produce",
    "generate",
    "responds",
    "replies",
    "syntax",
    "format",
    "template",
)
# A conversation that is told, up to the answer.
_TRANSCRIPT = re.compile(
    r"^\W*(?:user|human)\W*:.*\n\W*(?:assistant|model|ai)\W*:\W*\Z",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
# A sentence before bare or fenced JSON that says: this is the JSON (code, …) you wanted.
_ASKED_FOR = re.compile(
    r"\b(?:json|yaml|xml|payloads?|snippets?|code|config(?:uration)?|schemas?|objects?"
    r"|structures?|files?|request bod(?:y|ies)|documents?|data|samples?|templates?|definitions?"
    r"|logs?|shows?|returned|received|sent|said)\b"
    r"|\byou(?:'ve| have)? (?:asked|wanted|requested|need|can|could)\b",
    re.IGNORECASE | re.ASCII,  # in 以下のJSONを, too, it is a word
)
# The same before an element that only a tool is named as: not whatever is about files or code.
_MARKUP_ASKED_FOR = re.compile(
    r"\b(?:xml|markup|payloads?|snippets?|schemas?|documents?|samples?|templates?|definitions?"
    r"|shows?|returned|received|sent|said)\b"
    r"|\byou(?:'ve| have)? (?:asked|wanted|requested|can|could)\b",
    re.IGNORECASE | re.ASCII,
)
# What is to be done once somebody has said so: nobody has.
_PERMISSION = re.compile(
    r"^(?!\W*(?:\w+\W+)?(?:what|which|how|where)\b).*\b(?:shall|should|may|can|could) I\b.*\?\W*$"
    r"|\b(?:do|would) you (?:want|like) (?:me|us)\b"
    r"|\bif you(?:['’]d)? (?:like|want|wish)(?: (?:me|us)\b|\W*$|[,.;:])"
    r"|\b(?:if|once|when|after|before) you(?:['’]ve| have)? "
    r"(?:confirm|approve|agree|allow|accept|give)\b"
    r"|\b(?:await(?:ing)?|wait(?:ing)? for|need|pending) your \w+\W*$",
    re.IGNORECASE,
)
# The same, asked behind it: "Shall I proceed?".
_MAY_I = re.compile(
    r"\b(?:(?:shall|should|may|can|could) I|(?:do|would) you (?:want|like) me to"
    r"|let me know (?:if|when|once) (?:I (?:should|can|may)"
    r"|you(?:['’]d| would)? (?:like|want) me to))"
    r" (?:\w+ )?(?:proceed|go ahead"
    r"|(?:run|execute|make|send|call|do|submit) (?:it|this|that|these)\b)"
    r"(?![^.?!\n]*\b(?:again|differently|instead|other|another|more)\b)",
    re.IGNORECASE,
)
_INTENT = re.compile(
    r"\b(?:(?:I|we)(?:['’]ll| will| should| must|(?:['’]m| am|['’]re| are) (?:going|about) to"
    r"| (?:need|have|want) to|['’]d like to| would like to)|let me|let['’]s|calling|invoking"
    r"|using the)\b|^\W*\w+ing\b"
    r"|^\W*(?:step \d+\W+)?(?:check|verify|inspect|review|examine|read|list|open|fetch|find"
    r"|fix|understand) (?!of\b|.*\b(?:following|this|below)\b)"
    r"|让我|我来|我将|我会|我先|我要|我需要|接下来"
    r"|\b(?:je vais|voy a|vou|ich werde|lass mich|сейчас)\b",
    re.IGNORECASE,
)
_SENTENCE_LENGTH = 160
# The character after which the next sentence begins. One set first: `re` skips to the next of it.
_SENTENCE_END = re.compile(r"[.!?\n](?:(?<=\n)|(?=\s)(?<!e\.g.))")


class Region(enum.Enum):
    """What a place that is no call lies in, and so up to where the text is not looked at."""

    QUOTE = "quote"
    CODE = "code"
    LINE = "line"
    PARAGRAPH = "paragraph"
    DATA = "data"  # a paragraph of what was asked for, or is asked about
    NOTHING = "nothing"
    UNKNOWN = "unknown"  # more text will tell


_UNMARKED = (Where.JSON, Where.FENCE, Where.ELEMENT)


@frozen
class Shown:
    """Where the last call that was only shown ended, -1 for none, and what it lay in."""

    end: int = -1
    region: Region = Region.PARAGRAPH

    def goes_on(self, text: str, pos: int, where: Where) -> bool:
        """Whether hardly a word stands between it and `pos`, which is shown as well.

        What was asked for as data says nothing of a call that has its marks.
        """
        if self.end < 0 or (self.region is Region.DATA and where not in _UNMARKED):
            return False
        return _BETWEEN.fullmatch(text, self.end, pos) is not None


def begins_reply(text: str, pos: int) -> bool:
    """Whether nothing but some blanks stands before `pos`, as far as a stream remembers."""
    return pos < WINDOW and not text[:pos].strip()


def lead_of(text: str, pos: int, floor: int = 0) -> str:
    """The text before `pos` that counts, from `floor` on."""
    return text[max(floor, pos - WINDOW) : pos]


def starts_line(text: str, pos: int, floor: int = 0) -> bool:
    """Whether only whitespace, a tag or a call stands before `pos` on its line."""
    line = lead_of(text, pos, floor).rpartition("\n")[2].strip()
    return not line or line.endswith((">", "[/THINK]", "▷"))


def closing_quote(text: str, pos: int, floor: int = 0) -> str:
    """What closes the quote that opens right before `pos`; "" where none does."""
    lead = lead_of(text, pos, floor)
    lead = _before_tags(lead)
    if not lead or lead[-1] not in _QUOTES:
        return ""
    if lead.endswith(('"""', "'''")):
        return lead[-3:]
    opens = (
        lead[-1] in "`\\" or len(lead) == 1 or lead[-2] in _BEFORE_QUOTE or lead[-1] in "“‘«「『"
    )
    return _QUOTES[lead[-1]] if opens else ""


def _before_tags(lead: str) -> str:
    """`lead` without opening tags at its end: what they are in, a call behind them is in, too."""
    for _ in range(4):
        bare = lead.rstrip()
        if not bare.endswith((">", "]")):
            break
        start = max(bare.rfind("<"), bare.rfind("[TOOL_"))
        if start < 0 or _TAG.fullmatch(bare, start) is None:
            break
        lead = bare[:start]
    return lead


def region_at(text: str, pos: int, where: Where, final: bool, floor: int = 0) -> Region | None:
    """None where a call may begin at `pos`, else what `pos` lies in.

    Decided by the text before `pos`, except for inline code, which only its closing backtick
    proves: UNKNOWN until that, or the end of the line, has come.
    """
    if closing_quote(text, pos, floor):
        return Region.QUOTE
    lead = lead_of(text, pos, floor)
    line = lead.rpartition("\n")[2]
    marks = line.lstrip()
    if marks.startswith(">") and not marks.startswith(">>>"):
        return Region.LINE
    if marks.startswith("|") and where is not Where.SPECIAL:  # a table
        return Region.LINE
    if "`" in line and len(_BACKTICKS.findall(line)) % 2:
        code = _inline_code(text, pos, final)
        if code is not None:
            return code
    if where is Where.JSON and (
        _INSIDE_JSON.search(lead[-80:]) or not _BEFORE_JSON.search(line[-80:])
    ):
        return Region.NOTHING
    return _shown_in(lead, where)


def is_in_sentence(text: str, start: int, end: int, where: Where, floor: int = 0) -> bool:
    """Whether the call from `start` to `end` is a part of the text around it, or asked about."""
    if _SPOKEN_OF.match(text, end):
        return True
    if where in _UNMARKED and _MAY_I.search(text, end, end + WINDOW):
        return True
    line = lead_of(text, start, floor).rpartition("\n")[2]
    if _EXPLAINED.match(text, end) and _BULLET.fullmatch(line):
        return True
    if not _SENTENCE_GOES_ON.match(text, end):
        return _goes_on_below(text, end, lead_of(text, start, floor))
    return _IN_SENTENCE.search(line[-80:]) is not None or (where is Where.JSON and bool(line))


def _goes_on_below(text: str, end: int, lead: str) -> bool:
    """Whether the sentence before a call goes on in a line behind it: "emits\n…\nand waits."."""
    said = lead.rstrip()[-_SENTENCE_LENGTH:]
    if not said or said[-1] in ".!?" or not _GOES_ON_BELOW.match(text, end):
        return False
    return not _INTENT.search(_last_sentence(said))


def _inline_code(text: str, pos: int, final: bool) -> Region | None:
    ahead = text[pos : pos + _AHEAD].partition("\n")
    if "`" in ahead[0]:
        return Region.CODE
    if ahead[1] or final or len(ahead[0]) == _AHEAD:
        return None
    return Region.UNKNOWN


def _last_sentence(said: str) -> str:
    start = 0
    for end in _SENTENCE_END.finditer(said):
        start = end.end()
    return said[start:]


def _shown_in(lead: str, where: Where) -> Region | None:
    """What the sentence before a place announces: an example, or what the user asked for."""
    said = _before_tags(lead).rstrip()[-_SENTENCE_LENGTH:]
    if ":" in said[-4:] and _TRANSCRIPT.search(said):
        return Region.PARAGRAPH
    sentence = _last_sentence(said)
    words = sentence.lower()
    # A list, not `any`: most sentences hold none, and a generator asks each hint more slowly.
    hinted = bool([hint for hint in _EXAMPLE_HINTS if hint in words])
    if hinted and _EXAMPLE.search(sentence):
        return Region.PARAGRAPH
    meant = _INTENT.search(sentence) is not None
    if hinted and _TOLD.search(sentence) and (not meant or _TELLING.search(sentence)):
        return Region.PARAGRAPH
    if where not in _UNMARKED:
        return None
    wanted = _MARKUP_ASKED_FOR if where is Where.ELEMENT else _ASKED_FOR
    asked = _PERMISSION.search(sentence) or (not meant and wanted.search(sentence))
    return Region.DATA if asked else None
