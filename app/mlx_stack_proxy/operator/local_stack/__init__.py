"""The local stack: model servers, LiteLLM and the proxy, started and kept running by `up`.

`up.py` is the command; `tiers.py` says which models, `configs.py` and `children.py` what is started
with which settings, `supervisor.py` keeps it running, `guarded_process.py` ends it, even when the
command itself is killed.
"""
