"""The local stack: model servers, LiteLLM and the proxy, started and kept running by ``up``.

``up.py`` is the command. ``tiers.py`` chooses the models; ``configs.py`` makes the configuration
files, ``children.py`` the command and environment of each child process. ``supervisor.py`` starts
the children, asks them by ``probes.py`` whether they are ready, and restarts those that die.
``guarded_process.py`` makes sure that no child outlives ``up``, even if ``up`` is killed.
"""
