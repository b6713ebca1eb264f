"""Bytes ⇄ meaning, no decisions: server-sent events, chat completions, legacy forms."""
