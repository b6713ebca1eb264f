"""Tool calls: found in text, checked against the request's tools, repaired, else asked again."""
