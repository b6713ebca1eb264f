"""Real agents doing small programming tasks, with a model that spoils one reply in four.

The real Claude Code, Codex and opencode, the real LiteLLM and the real proxy; only the model is
scripted. What came out: benchmarks/clients.md. How the clients are installed, set up and started is
`make clients`' (tests/clients).
"""
