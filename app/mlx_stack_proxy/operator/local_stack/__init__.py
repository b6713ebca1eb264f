"""The local stack: model servers, LiteLLM and the proxy, started and kept running by ``up``.

``up.py`` is the command. ``tiers.py`` chooses the models; ``children.py`` says how each child is
started and configured. ``supervisor.py`` starts the children, asks them whether they are ready, and
restarts those that die. ``guarded_process.py`` makes sure that no child outlives ``up``, even if
``up`` is killed.
"""
