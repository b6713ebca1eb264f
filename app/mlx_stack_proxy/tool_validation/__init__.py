"""Find tool calls in text, check them against the request's tools, repair them or ask again."""
