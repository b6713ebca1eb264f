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
    r"^\W{0,20}for (?:example|instance)\b|\bfor (?:example|instance)\W{0,20}$|\be\.g\.\W{0,20}$"
    r"|\b(?:here(?:'s| is)|this is|consider|as|show(?:ing)?(?: you)?) (?:an?|one|another)"
    r"(?: \w{1,64})? example\b"
    r"|\b(?:you|it|they|he|she|one|models?|assistant|agent|llm) (?:\w{1,64}ly |then )?"
    r"(?:would|could|should|might) (?:\w{1,64}ly |then |also )?"
    r"(?:write|emit|output|look like|produce|generate|respond|reply|print|call)\b"
    r"|\bsieht (?:\w{1,64} ){0,3}so aus\W{0,20}$"
    r"|\bhat (?:diese|folgende)s? (?:form|format|syntax|struktur)\W{0,20}$"
    # What was, and what became of it.
    r"|^\W{0,20}(?:previously|earlier|before|after|vorher|nachher|avant|après|antes"
    r"|después)\W{0,20}:\W{0,20}$"
    r"|\blike (?:this|so|the following)\s{0,20}:?\s{0,20}$|\b(?:such as"
    r"|instead of)\s{0,20}:?\s{0,20}$"
    r"|\b(?:texts?|strings?|repl(?:y|ies)|outputs?|inputs?|lines?|messages?) like\s{0,20}:\s{0,20}$"
    # A heading of its own: "## Example 2", "**Beispiel:**", "Test fixture:", "Wrong:".
    r"|^\W{0,20}(?:\w{1,64} ){0,2}(?:examples?|beispiele?|exemples?|ejemplos?|esemp[io]o?"
    r"|exemplos?|примеры?)"
    r"(?: \d{1,64})?\W{0,20}$"
    r"|^\W{0,20}(?:\w{1,64} )?(?:fixture|test case|sample|wrong|incorrect|bad|correct|right"
    r"|good)\W{0,20}:\W{0,20}$"
    r"|(?:例如|比如|示例|例子|例|例えば|たとえば|например)\W{0,20}$"
    r"|예(?:를 들어|시)\W{0,20}$|예\s{0,20}:\s{0,20}$"
    r"|\b(?:never|don't|do not) (?:write|emit|output)\b"
    # "For example" in other languages: first, last, or of what a sentence without blanks says.
    rf"|^\W{{0,20}}{_FOR_EXAMPLE}\b|\b(?:{_FOR_EXAMPLE}|z\. ?b\.|p\. ?ex\.)\W{{0,20}}$"
    r"|(?:例如|比如|例えば|たとえば|예를 들어)[^。！？!?]{0,300}[:：]\s{0,20}$",
    re.IGNORECASE,
)
# The same, unless the sentence says what is done now: "Let me see what it printed:".
_TOLD = re.compile(
    # What was, or what others did, is told: "Earlier I called:".
    r"\b(?:I|we|you|it|they|users?|models?|assistant|agent|llm)(?:['’]ve| have"
    r"| had)? (?:\w{1,64} )?"
    r"(?:called|ran|executed|invoked|wrote|emitted|sent|produced|generated|printed|replied with)"
    r"\s{0,20}:\s{0,20}$"
    r"|(?:\b(?:I|we|you|it|they) (?:\w{1,64} )?(?:called|ran|executed|invoked)"
    r"|ve (?:already )?(?:called|run|made|executed|invoked))"
    r" (?:(?!(?:in|on|to|with|for|from|about)\b)\w{1,64} ){1,4}(?:calls?|tools?|functions?"
    r"|commands?)"
    r"\s{0,20}:\s{0,20}$"
    r"|^\W{0,20}(?:(?!what\b)[\w'’]{1,64} ){1,3}"
    r"(?:call|reply|response|output|request|message|step|completion) was\s{0,20}:\s{0,20}$"
    r"|\bexamples?\s{0,20}:\s{0,20}$|\blooks? (?:something )?like(?: this"
    r"| the following)?\s{0,20}:?\s{0,20}$"
    # What a model does is told: "The assistant then writes".
    r"|\b(?:it|models?|assistant|agent|llm) (?:then |also )?"
    r"(?:writes?|emits?|outputs?|prints?|produces?|generates?|responds with|replies with)\b"
    r"|\b(?:syntax|format|template) is\b|(?:\b(?:the|this|that|following|call)"
    r"|['’]s) (?:\w{1,64} )?"
    r"(?:syntax|format|template)(?: \w{1,64}){0,3}\s{0,20}:\s{0,20}$"
    r"|(?:^\W{0,20}|\b(?:is|['’]s|you|show) )how (?:\w{1,64} ){1,3}(?:calls?|requests?)"
    r" (?:would |should |could |might )?looks?(?: like)?\W{0,20}$"
    r"|(?:\bexample (?:of an? )?|(?:^\W{0,20}(?:\w{1,64} ){0,2}|\b(?:show|give) )examples (?:of )?)"
    r"(?:tool |function )?(?:calls?|usage|outputs?|responses?|reply|replies|formats?)\b"
    r"|^\W{0,20}(?:the )?(?:usage|syntax|format|expected(?: \w{1,64})?"
    r"|test case \d{1,64})(?: is)?\W{0,20}:\W{0,20}$"
    # What a log, a template or a server has: "The log shows:", "the prompt contains this line:".
    r"|\b(?:logs?|traces?|transcripts?|dumps?|history|fixtures?|prompts?|parsers?|servers?|clients?"
    r"|completions?)(?: \w{1,64})? (?:shows?|contains?|reads?|says?|holds?|has|sees?|gets?"
    r"|received?)"
    r"(?: (?:this|these|the following)(?: \w{1,64})?)?\s{0,20}:\s{0,20}$"
    # What a call is in some format: "A call is written as:", "… represents its calls so:".
    r"|\bcalls? (?:is|are) (?:\w{1,64} )?(?:written|represented|encoded|spelled|formatted"
    r"|expressed)\b"
    r"(?! to\b)[^.,;:]{0,300}:\s{0,20}$"
    r"|\b(?:holds|represents|encodes|formats|spells"
    r"|expresses) (?:\w{1,64} ){0,2}calls?\b[^.,;:]{0,300}:\s{0,20}$"
    # An example, and what models do or calls look like, in other languages.
    r"|\b(?:ein|un|um|uno|вот) (?:beispiel|exemple|ejemplo|esempio|exemplo"
    r"|пример)\b[^.!?:]{0,300}:\s{0,20}$"
    rf"|\b{_MODEL}\b[^.!?,\n]{{0,40}}\b{_WRITES}\b[^.!?,\n]{{0,300}}$"
    r"|(?:模型|助手)[^。！？]{0,8}(?:输出|生成|写|返回|回复|给出)[^。！？,，]{0,300}$"
    r"|(?:モデル|アシスタント)[^。！？]{0,20}(?:出力|生成|書|返)[^。！？、]{0,300}$"
    r"|(?:모델|어시스턴트)[^.!?]{0,20}(?:출력|생성|작성)[^.!?,]{0,300}$"
    r"|\b(?:voici|voilà) à quoi ressembl|\bressembl\w{1,64} à (?:ceci|cela|ça)\b"
    r"|\bse ve así\W{0,20}$"
    r"|\btiene (?:este|el siguiente) aspecto\b|\bвыгляд\w{1,64} так\b"
    r"|^\s{0,20}#.{0,300}\b(?:format|syntax|usage)s?\W{0,20}$|格式(?:为|是|如下)\W{0,20}$",
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
