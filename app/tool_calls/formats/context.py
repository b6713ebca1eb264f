"""Whether a call may begin at a place: not in quotes, inline code, quoted lines, or an example."""

from __future__ import annotations

import enum
import re

from app.tool_calls.formats import examples, permission
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
    r"[ \t]*\n\s*(?:and|or|but|so|which|that|where|who|you)\b(?![^\n]*:[ \t]*(?:\n|\Z))"
)
# Between two examples of one list.
_BETWEEN = re.compile(
    r"\s*+(?:(?:and|or|und|oder|et|ou|y|o|和|或)\b\W*+)?(?:[-*•]|\d{1,2}[.)])?\s*"
)
# What is said of the call right behind it: "… is Phi-4's format"; in a list "… – Qwen's".
_SPOKEN_OF = re.compile(r"[ \t]+(?:is|are|was|were|means|would|looks)\b")
_BULLET = re.compile(r"\s*(?:[*•+-]|\d{1,3}[.)])\s*")
_EXPLAINED = re.compile(r"[ \t]+(?:[–—→-]|->|=>)[ \t]")
_TAG = re.compile(r"<(?!/)(?![^<>]*end)[^<>\s]{1,60}>|\[TOOL_(?:CALLS|REQUEST)\]")

# A conversation that is told, up to the answer.
_TRANSCRIPT = re.compile(
    r"^\W{0,20}(?:user|human)\W{0,20}:.{0,200}\n\W{0,20}(?:assistant|model|ai)\W{0,20}:\W{0,20}\Z",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
# A sentence before bare or fenced JSON that says: this is the JSON (code, …) you wanted.
_ASKED_FOR = re.compile(
    r"\b(?:json|yaml|xml|payloads?|snippets?|code|config(?:uration)?|schemas?|objects?"
    r"|structures?|files?|request bod(?:y|ies)|documents?|data|samples?|templates?|definitions?"
    r"|logs?|shows?|returned|received|sent|said)\b"
    r"|\byou(?:'ve| have)? (?:asked|wanted|requested|need|can|could)\b"
    r"|^\s*(?:#|\*\*)\W*(?:requests?|responses?|replies|reply|body|output)\W*$"  # a heading
    r"|\b(?:gewünscht|angefordert|demandé|solicitad[oa]|pediste|richiest[oaie]\b)"
    r"|请求体|[你您]要的|ご要望",
    re.IGNORECASE | re.ASCII,  # in 以下のJSONを, too, it is a word
)
# The same before an element that only a tool is named as: not whatever is about files or code.
_MARKUP_ASKED_FOR = re.compile(
    r"\b(?:xml|markup|payloads?|snippets?|schemas?|documents?|samples?|templates?|definitions?"
    r"|shows?|returned|received|sent|said)\b"
    r"|\byou(?:'ve| have)? (?:asked|wanted|requested|can|could)\b",
    re.IGNORECASE | re.ASCII,
)
_INTENT = re.compile(
    r"\b(?:(?:I|we)(?:['’]ll| will| should| must|(?:['’]m| am|['’]re| are) (?:going|about) to"
    r"| (?:need|have|want) to|['’]d like to| would like to)|let me|let['’]s|calling|invoking"
    r"|using the)\b|^\W*\w+ing\b"
    r"|^\W*(?:(?:step \d+|now|next|first|then|so)\W+)?(?:check|verify|inspect|review|examine|read"
    r"|list|open|fetch|find|fix|understand) (?!of\b|.*\b(?:following|this|below)\b)"
    r"|^\W*to (?:see|check|verify|find|learn|understand)\b(?!.*\b(?:following|this|below)\b)"
    r"|让我|我来|我将|我会|我先|我要|我需要|接下来"
    r"|\b(?:je (?:vais|lis|regarde|vérifie)|voyons|regardons|voy a|vamos a|veamos|reviso|vou"
    r"|ich (?:werde|lese|prüfe|sehe)|lass mich|сейчас)\b",
    re.IGNORECASE,
)
_SENTENCE_LENGTH = 160
# The character after which the next sentence begins. One set first: `re` skips to the next of it.
_ABBREVIATED = r"(?<!e\.g\.)(?<!\bz\.)(?<!z\. B\.)(?<!z\.B\.)(?<!\bp\.)"
_SENTENCE_END = re.compile(rf"[.!?\n](?:(?<=\n)|(?=\s){_ABBREVIATED})")


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
    if where in _UNMARKED and permission.is_asked_behind(text, end, end + WINDOW):
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
    meant = _INTENT.search(sentence) is not None
    if examples.announces(sentence, meant):
        return Region.PARAGRAPH
    if where not in _UNMARKED:
        return None
    wanted = _MARKUP_ASKED_FOR if where is Where.ELEMENT else _ASKED_FOR
    asked = permission.is_asked(sentence) or (not meant and wanted.search(sentence))
    return Region.DATA if asked else None
