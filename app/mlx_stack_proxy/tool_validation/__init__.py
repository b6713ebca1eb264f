"""Finds tool calls in text, checks them against the request's tools, repairs them or retries."""
