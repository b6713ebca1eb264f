"""A session's text replies, which ``similar_replies`` compares; the store keeps their digests."""

from __future__ import annotations

import contextlib
from collections import Counter

from .. import likeness
from ..engine.exchange import Exchange
from ..likeness import Digest
from ..settings import LoopDetectionSettings
from ..wire.reply import ChoiceReply
from .history import History


def before(
    exchange: Exchange, history: History, rules: LoopDetectionSettings
) -> tuple[Digest, ...]:
    """Return the last text replies; none if the settings don't compare them.

    Of a session without a name only those that the transcript has: the same script may run again,
    or twice at a time.
    """
    if rules.similar_replies is None or exchange.began is None:
        return ()
    replies: list[Digest] = []
    with contextlib.suppress(ValueError):  # another version's
        replies = [likeness.loaded(reply) for reply in exchange.began.replies]
    if exchange.session.derived:
        sent = Counter(turn.action for turn in history.turns if not turn.calls)
        sent &= Counter(reply.text for reply in replies)
        by_text = {reply.text: reply for reply in replies}
        replies = [by_text[text] for text in sent.elements()]
    return tuple(replies)


def digest_of(
    choice: ChoiceReply, exchange: Exchange, rules: LoopDetectionSettings
) -> Digest | None:
    """Return the digest of a text reply that counts; None of any other."""
    section, body = rules.similar_replies, exchange.request.body
    if section is None or choice.tool_calls or body.get("response_format"):
        return None
    is_short = len(choice.text.strip()) < section.min_chars
    return None if is_short else likeness.digest(choice.text)
