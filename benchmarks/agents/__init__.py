"""Does the proxy make a weak model reliable?

`python -m benchmarks.agents`; what came out: benchmarks/agents.md.

Real models, a real LiteLLM, the real proxy, and a plain agent loop with the OpenAI SDK:

    tasks.py      the tasks, and when one is right
    agent.py      the agent
    broken.py     which replies no agent can use, and which are part of a loop
    relay.py      stands before LiteLLM: counts what models generate, throws faults in
    columns.py    the ways of asking that are compared; a line a task on disk is theirs
    stack.py      starts the demo tiers and the proxies
    report.py     the tables
"""
