"""What is only to be done once somebody has said so: words that ask whether a call may be made."""

from __future__ import annotations

import re

# Asked, or taken for granted, in the sentence before a call.
_PERMISSION = re.compile(
    r"^(?!\W{0,20}(?:\w{1,64}\W{1,20})?(?:what|which|how|where)\b).{0,300}\b(?:shall|should|may"
    r"|can|could) I\b.{0,300}\?\W{0,20}$"
    r"|\b(?:do|would) you (?:want|like) (?:me|us)\b"
    r"|\bif you(?:['’]d)? (?:like|want|wish)(?: (?:me|us)\b|\W{0,20}$|[,.;:])"
    r"|\b(?:if|once|when|after|before) you(?:['’]ve| have)? "
    r"(?:confirm|approve|agree|allow|accept|give)\b"
    r"|\b(?:await(?:ing)?|wait(?:ing)? for|need|pending) your \w{1,64}\W{0,20}$"
    r"|\b(?:with|subject to) your (?:permission|approval|consent|confirmation|ok)\b"
    # … not what is to be looked at: "Let me check if it's okay:".
    r"|(?:^|[^\w\s]\s{0,20}|\b(?:it|this|that|these|them|so|now) )"
    r"if (?:that|this|it)(?:['’]s| is) (?:fine|ok|okay|alright|all right)\b"
    r"|\bnot (?:yet )?executed\W{0,20}$"
    r"|\b(?:wenn|sobald|falls) (?:du|sie) (?:\w{1,64} )?(?:zustimm|bestätig|einverstanden|erlaub)"
    r"|\b(?:si|dès que) vous (?:confirmez|approuvez|acceptez|êtes d['’]accord)"
    r"|\bsi (?:me )?(?:confirmas?|apruebas?|est[áa]s? de acuerdo|lo apruebas?)\b"
    r"|\bse (?:confermi|approvi|sei d['’]accord)\b|\bse (?:você )?(?:confirmar|aprovar|concordar)\b"
    r"|(?:如果|若|只要|一旦|等)[你您](?:同意|确认|允许|批准)"
    r"|\bесли (?:вы |ты )?(?:соглас|подтверд|одобр)"
    r"|^(?!\W{0,20}(?:was|welche\w{0,64}|wie|wo|que|quoi|quel\w{0,64}|comment|où)\b)"
    r".{0,300}\b(?:(?:soll|darf|dass) ich|(?:dois|puis)-je)\b.{0,300}\?\W{0,20}$"
    r"|\b(?:voulez|souhaitez|veux)-(?:vous|tu) que j.{0,300}\?\W{0,20}$"
    r"|¿(?:quieres?|deseas?) que\b.{0,300}\?\W{0,20}$|\b(?:vuoi|vuole) che\b.{0,300}\?\W{0,20}$"
    r"|\bquer que eu\b.{0,300}\?\W{0,20}$"
    r"|(?:要我|是否(?:要|可以|需要)?(?:执行|运行|继续)).{0,300}[？?]\W{0,20}$|よろしいですか|いいですか",
    re.IGNORECASE,
)
# Asked behind it: "Shall I proceed?".
_MAY_I = re.compile(
    r"\b(?:(?:shall|should|may|can|could) I|(?:do|would) you (?:want|like) me to"
    r"|let me know (?:if|when|once) (?:I (?:should|can|may)"
    r"|you(?:['’]d| would)? (?:like|want) me to))"
    r" (?:\w{1,64} )?(?:proceed|go ahead"
    r"|(?:run|execute|make|send|call|do|submit) (?:it|this|that|these)\b)"
    r"(?![^.?!\n]{0,300}\b(?:again|differently|instead|other|another|more)\b)"
    r"|\b(?:shall|should|may) I (?:go on|continue)\?"
    r"|\b(?:proceed|confirm|ok(?:ay)? to \w{1,64})\b[^.?!\n]{0,20}\?"
    r"|\bis (?:that|this|it) (?:ok|okay|fine|alright|all right)(?: with you)?\?"
    r"|\bplease (?:confirm|approve)(?:[.!,:]|\s{0,20}$| (?:before|this|that|it|so|to|first|and"
    r"|if I)\b)"
    r"|\b(?:just )?say (?:yes|ok|go)\b"
    r"|\b(?:await(?:ing)?|wait(?:ing)? for|need) your"
    r" (?:approval|confirmation|permission|consent|ok)\b"
    # The same in other languages.
    r"|\b(?:soll|darf) ich (?:das|es|dies\w{0,64}|(?:\w{1,64} )?(?:fortfahren"
    r"|weitermachen))\b[^.!\n]{0,300}\?"
    r"|\b(?:möchte|woll|will)\w{0,64}[^.?!\n]{0,10}, dass ich (?:das|es|dies|fort)"
    r"|\b(?:(?:dois|puis)-je|(?:voulez|souhaitez|veux)-(?:vous|tu) que je)"
    r" (?:l['’]|l[ea]s? |contin|proc)"
    r"|¿(?:quieres?|deseas?) que (?:l[oa]s?\b|proceda|continúe)"
    r"|¿(?:l[oa]s? \w{1,64}o|procedo|continúo)\?"
    r"|\b(?:vuoi|vuole) che (?:l[oai]\b|proceda)|\b(?:l[oai] (?:eseguo|faccio|invio)|procedo)\?"
    r"|\b(?:quer que eu|posso) (?:execut|prossig|prosseg|faça|envi)[^.!\n]{0,300}\?"
    r"|(?:要我|需要我|是否|可以)(?:现在|继续)?(?:执行|运行|继续)[^。？?\n]{0,8}[？?]"
    r"|(?:実行|続行|進め)[^。\n]{0,8}(?:よろしい|いい)(?:です|でしょう)か"
    r"|\b(?:выполнить|запустить|продолжить|отправить)(?: (?:это|её|его))?\?"
    r"|(?:실행|진행|계속)(?:할까요|해도 될까요|해도 되나요)",
    re.IGNORECASE,
)


def is_asked(sentence: str) -> bool:
    """Whether the sentence before a call asks for leave to make it."""
    return _PERMISSION.search(sentence) is not None


def is_asked_behind(text: str, pos: int, end: int) -> bool:
    """Whether the text between the two indices asks for leave to make the call before it."""
    return _MAY_I.search(text, pos, end) is not None
