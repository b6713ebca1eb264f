"""How long a reply may get, and how many tokens a session and an hour may cost."""
