"""How many agents two tiers carry: the proxy's own rules, played through in a time of their own.

What decides is the real thing: ``core/next_step.py``, ``core/ladder.py``, ``core/breaker.py``,
``proxy/tier_queue.py`` and the settings. Simulated are the agents, the tiers' servers and the time.
`benchmarks/scaling.md` has what came of it.
"""
