"""What a tool's result says of its call: that it failed, that nothing came of it.

OpenAI's format has no field for either, only the text.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

_HEAD: Final = 400  # characters at either end that are looked at
_BEGINS: Final = re.compile(
    r"\W{0,8}(?:error|errno|fatal|failure|failed|exception|traceback|panic|invalid|denied|unauthorized"
    r"|forbidden|not found|(?:unknown|no such) (?:tool|function|command|file)|tool execution failed"
    r"|cannot|could not|can't|unable to|timed out|(?:permission|access) denied"
    r"|connection (?:refused|reset|timed out|error)"
    # The word for an error in other languages.
    r"|错误|錯誤|エラー|오류|ошибка|fehler|erreur|erro|errore|błąd|hata|lỗi|خطأ|שגיאה)\b"
    r"|\W{0,8}(?:(?:ba|z)?sh|usage): ",
    re.IGNORECASE,
)
_HOLDS: Final = re.compile(
    r"Traceback \(most recent call last\)"
    r"|^[A-Z][\w.]{0,60}(?:Error|Exception): "
    r"|\b(?:exit(?:ed)?(?: with)?(?: status| code)?|return code|exit_code)[:= ]{1,3}[1-9]"
    r"|: (?:command not found|No such file or directory|Permission denied)",
    re.MULTILINE,
)
# One of these is in every text that _HOLDS finds something in; they are looked for much faster.
_MARKS: Final = (
    *("rror: ", "xception: ", "Traceback", "exit", "return code"),
    *("command not found", "No such file", "Permission denied"),
)
_SAYS_SO: Final = ("error", "errors", "is_error", "isError", "exception")
_STATUS: Final = frozenset({"error", "failed", "failure"})

_SHORT: Final = 200  # characters of what says no more than that there is nothing
_NOTHING: Final = re.compile(
    # "No output", "no errors" and None are what a success looks like.
    r"[\W_]*(?:no(?! (?:output|errors?|problems?|issues?|warnings?))\b|0 \w"
    r"|(?:not|nothing|false|empty|zero)\b)"
    r"|.*\b(?:no|not|zero|0|without)\b(?: \w+){0,3}? (?:found|results?|match(?:es|ed)?|hits?"
    r"|changes?|changed|modified|updated|entries|rows|items|files?|data|effect|available)\b"
    r"|.*\b(?:already|unchanged|nothing|unavailable|skipped|ignored)\b"
    r"|[\s\[\]{}()<>\"'`.,:;_/-]+\Z",  # a tick says something
    re.IGNORECASE | re.DOTALL,
)
# JSON that holds none of what was looked for.
_EMPTY_JSON: Final = re.compile(
    r"\"(?:results|items|data|matches|hits|entries|rows|records|documents|files)\"\s*:\s*\[\s*\]",
    re.IGNORECASE,
)
# The same in other languages, but for what a success looks like ("keine Fehler").
_NOTHING_ELSEWHERE: Final = (
    *("nicht gefunden", "nichts gefunden", "keine ergebnis", "keine treffer", "keine daten"),
    *("aucun résultat", "aucune donnée", "introuvable", "no se encontr", "sin resultados"),
    *("ningún resultado", "nenhum resultado", "não encontrad", "nessun risultato", "non trovat"),
    *("не найден", "нет результатов", "нет данных", "нет совпадений"),
    *("没有找到", "未找到", "找不到", "没有结果", "无结果", "不存在"),
    *("見つかりません", "該当なし", "찾을 수 없", "결과가 없"),
)


def says_nothing(text: str) -> bool:
    """Whether a result says that nothing was found or done: a guess from the words tools use."""
    if len(text) > _SHORT:
        return False
    if _NOTHING.match(text) or (text[:1] == "{" and _EMPTY_JSON.search(text)):
        return True
    folded = text.casefold()
    return any(map(folded.__contains__, _NOTHING_ELSEWHERE))


# What there isn't, is no verdict on it: of ids that are guessed each is answered so.
_MAX_VERDICT: Final = 40  # characters: a longer answer tells more than how something stands
_NO_VERDICT: Final = re.compile(
    r"\W*(?:(?:none|null|nil|undefined|nan|n/a)\W*\Z|unknown\b"
    r"|(?:(?:http|status|code|error)[\W_]*){0,3}[45]\d\d\b)",
    re.IGNORECASE,
)


def may_be_verdict(text: str) -> bool:
    """Whether a result may say no more than how something stands ("alive", "200 OK")."""
    return len(text) <= _MAX_VERDICT and not _NO_VERDICT.match(text)


def is_error(text: str) -> bool:
    """Whether a result says that its call failed. A guess from the words that tools use."""
    if not text:
        return False
    if text[0] == "{" and (said := _in_json(text)) is not None:
        return said
    if _BEGINS.match(text):
        return True
    ends = text if len(text) <= 2 * _HEAD else f"{text[:_HEAD]} {text[-_HEAD:]}"
    for mark in _MARKS:
        if mark in ends:
            return _HOLDS.search(ends) is not None
    return False


def _in_json(text: str) -> bool | None:
    try:
        value: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict):
        return None
    if any(value.get(key) for key in _SAYS_SO):
        return True
    for key in ("success", "ok"):
        if value.get(key) is False:
            return True
    status = value.get("status")
    if isinstance(status, str) and status.lower() in _STATUS:
        return True
    codes = (value.get(key) for key in ("exit_code", "exitCode", "returncode", "return_code"))
    return any(isinstance(code, int) and code != 0 for code in codes)
