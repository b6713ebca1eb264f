"""Real agents doing small programming tasks, with a model that spoils one reply in four.

`python -m benchmarks.clients`; what came out: benchmarks/clients.md.

The real Claude Code, Codex and opencode, the real LiteLLM and the real proxy; only the model is
scripted. How the clients are installed, set up and started is `make clients`' (tests/clients).

    tasks.py      the twenty tasks, and when one is done
    toolboxes.py  each client's own tools
    spoiled.py    the ways of spoiling a reply, and which are spoiled
    model.py      the scripted model
    judge.py      which replies a client can't use
    report.py     the tables
"""
