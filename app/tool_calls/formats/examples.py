"""Sentences before a call which say that it is only shown: an example, or what others wrote."""

from __future__ import annotations

import re
from typing import Final

_FOR_EXAMPLE: Final = (
    r"(?:par exemple|zum beispiel|por (?:ejemplo|exemplo)|(?:ad|per) esempio|например)"
)
_MODEL: Final = (
    r"(?:modell|modèle|modelo|modello|модель|assistente?|asistente|assistant|ассистент|agente?)"
)
_WRITES: Final = (
    r"(?:schreibt|gibt|erzeugt|generiert|liefert|écrit|produit|émet|génère|renvoie|répond"
    r"|escribe|emite|genera|produce|devuelve|escreve|gera|produz|scrive|emette"
    r"|пишет|выводит|генерирует|возвращает)"
)

# A sentence before a call that says: this is what one looks like.
_EXAMPLE = re.compile(
    r"^\W*for (?:example|instance)\b|\bfor (?:example|instance)\W*$|\be\.g\.\W*$"
    r"|\b(?:here(?:'s| is)|this is|consider|as|show(?:ing)?(?: you)?) (?:an?|one|another)"
    r"(?: \w+)? example\b"
    r"|\b(?:you|it|they|he|she|one|models?|assistant|agent|llm) (?:\w+ly |then )?"
    r"(?:would|could|should|might) (?:\w+ly |then |also )?"
    r"(?:write|emit|output|look like|produce|generate|respond|reply|print|call)\b"
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
    r"|\b(?:never|don't|do not) (?:write|emit|output)\b"
    # "For example" in other languages: first, last, or of what a sentence without blanks says.
    rf"|^\W*{_FOR_EXAMPLE}\b|\b(?:{_FOR_EXAMPLE}|z\. ?b\.|p\. ?ex\.)\W*$"
    r"|(?:例如|比如|例えば|たとえば|예를 들어)[^。！？!?]*[:：]\s*$",
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
    r"|^\W*(?:(?!what\b)[\w'’]+ ){1,3}"
    r"(?:call|reply|response|output|request|message|step|completion) was\s*:\s*$"
    r"|\bexamples?\s*:\s*$|\blooks? (?:something )?like(?: this| the following)?\s*:?\s*$"
    # What a model does is told: "The assistant then writes".
    r"|\b(?:it|models?|assistant|agent|llm) (?:then |also )?"
    r"(?:writes?|emits?|outputs?|prints?|produces?|generates?|responds with|replies with)\b"
    r"|\b(?:syntax|format|template) is\b|(?:\b(?:the|this|that|following|call)|['’]s) (?:\w+ )?"
    r"(?:syntax|format|template)(?: \w+){0,3}\s*:\s*$"
    r"|(?:^\W*|\b(?:is|['’]s|you|show) )how (?:\w+ ){1,3}(?:calls?|requests?)"
    r" (?:would |should |could |might )?looks?(?: like)?\W*$"
    r"|(?:\bexample (?:of an? )?|(?:^\W*(?:\w+ ){0,2}|\b(?:show|give) )examples (?:of )?)"
    r"(?:tool |function )?(?:calls?|usage|outputs?|responses?|reply|replies|formats?)\b"
    r"|^\W*(?:the )?(?:usage|syntax|format|expected(?: \w+)?|test case \d+)(?: is)?\W*:\W*$"
    # What a log, a template or a server has: "The log shows:", "the prompt contains this line:".
    r"|\b(?:logs?|traces?|transcripts?|dumps?|history|fixtures?|prompts?|parsers?|servers?|clients?"
    r"|completions?)(?: \w+)? (?:shows?|contains?|reads?|says?|holds?|has|sees?|gets?|received?)"
    r"(?: (?:this|these|the following)(?: \w+)?)?\s*:\s*$"
    # What a call is in some format: "A call is written as:", "… represents its calls so:".
    r"|\bcalls? (?:is|are) (?:\w+ )?(?:written|represented|encoded|spelled|formatted|expressed)\b"
    r"(?! to\b)[^.,;:]*:\s*$"
    r"|\b(?:holds|represents|encodes|formats|spells|expresses) (?:\w+ ){0,2}calls?\b[^.,;:]*:\s*$"
    # An example, and what models do or calls look like, in other languages.
    r"|\b(?:ein|un|um|uno|вот) (?:beispiel|exemple|ejemplo|esempio|exemplo|пример)\b[^.!?:]*:\s*$"
    rf"|\b{_MODEL}\b[^.!?,\n]{{0,40}}\b{_WRITES}\b[^.!?,\n]*$"
    r"|(?:模型|助手)[^。！？]{0,8}(?:输出|生成|写|返回|回复|给出)[^。！？,，]*$"
    r"|(?:モデル|アシスタント)[^。！？]{0,20}(?:出力|生成|書|返)[^。！？、]*$"
    r"|(?:모델|어시스턴트)[^.!?]{0,20}(?:출력|생성|작성)[^.!?,]*$"
    r"|\b(?:voici|voilà) à quoi ressembl|\bressembl\w+ à (?:ceci|cela|ça)\b|\bse ve así\W*$"
    r"|\btiene (?:este|el siguiente) aspecto\b|\bвыгляд\w+ так\b"
    r"|^\s*#.*\b(?:format|syntax|usage)s?\W*$|格式(?:为|是|如下)\W*$",
    re.IGNORECASE,
)
# … and does not say that it is told now: "Let me explain the format:".
_TELLING = re.compile(
    r"\b(?:show|explain|describ|demonstrat|illustrat|tell|repeat|recall|mention|quot)(?:e|ing)?\b"
    r"|\bdocumenting\b|\b(?:giv|provid)(?:e|ing) (?:you|an?|some|examples)\b"
    r"|\b(?:clarify|sketch|outline|walk you)\b"
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
    "z. b",
    "z.b",
    "p. ex",
    "p.ex",
    "model",
    "modèle",
    "модел",
    "模型",
    "助手",
    "モデル",
    "アシスタント",
    "모델",
    "어시스턴트",
    "assist",
    "asist",
    "agent",
    "ассист",
    "ressembl",
    "así",
    "aspecto",
    "выгляд",
    "call",
    "log",
    "trace",
    "transcript",
    "dump",
    "history",
    "parser",
    "server",
    "client",
    "completion",
    "prompt",
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


def announces(sentence: str, meant: bool) -> bool:
    """Whether a sentence says that what follows is shown. `meant`: it says what is done now."""
    words = sentence.lower()
    # A list, not `any`: most sentences hold none, and a generator asks each hint more slowly.
    if not [hint for hint in _EXAMPLE_HINTS if hint in words]:
        return False
    if _EXAMPLE.search(sentence):
        return True
    return _TOLD.search(sentence) is not None and (not meant or bool(_TELLING.search(sentence)))
