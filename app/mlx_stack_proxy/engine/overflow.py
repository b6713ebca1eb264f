"""How servers say that a prompt is too long for the model, and what they say of its window.

The wordings are those of OpenAI, LiteLLM, vLLM, llama.cpp, LM Studio, Ollama, Anthropic and Gemini,
and of the MLX servers that have a limit at all (mlx-lm's own has none).
"""

from __future__ import annotations

import re

_OVERFLOW = re.compile(
    r"context_length_exceeded|contextwindowexceeded|context_window_exceeded|exceed_context_size"
    r"|context (?:length|window|limit|size)[^.]{0,40}\bexceed"
    r"|exceed[^.]{0,60}\bcontext (?:length|window|limit|size)"
    r"|maximum context (?:length|limit|window)"
    r"|maximum model length"
    r"|(?:longer|larger|greater) than the (?:model'?s? )?(?:maximum )?context"
    r"|prompt is too long|prompt too long|input is too long"
    r"|prompt \(\d+ tokens?\) exceeds"
    r"|exceeds the maximum number of tokens allowed"
    r"|input tokens exceed the configured limit"
    r"|context the overflows|context overflow"
)
_WINDOW = (
    re.compile(
        r"(?:maximum|max|model'?s?|available)[^.\d]{0,40}?(?:context|model)[^.\d]{0,20}?"
        r"(?:length|window|limit|size)[^\d]{0,20}?(\d{3,8})"
    ),
    re.compile(r"\bn_ctx\D{0,6}(\d{3,8})"),
    re.compile(r"tokens? (?:>|exceeds?)[^\d]{0,60}?(\d{3,8})"),
    re.compile(r"tokens allowed \(?(\d{3,8})"),
    re.compile(r"context (?:length|window|limit|size) (?:of |is |= ?|\()(?:only )?(\d{3,8})"),
)
MAX_READ = 4000  # characters of an answer


def is_overflow(text: str) -> bool:
    """Whether an error's text, or its type, says that the prompt does not fit."""
    return _OVERFLOW.search(text[:MAX_READ].lower()) is not None


def window_in(text: str) -> int | None:
    """The context window in tokens that such a text speaks of, if it does."""
    lower = text[:MAX_READ].lower().replace(",", "")
    for pattern in _WINDOW:
        if found := pattern.search(lower):
            return int(found[1])
    return None
