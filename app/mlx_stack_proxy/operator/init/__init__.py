"""``mlx-stack-proxy init``: the first ``config.yaml``, from what is on this machine already.

What LiteLLM and files tell becomes model groups (``model_groups``), these become a proposal
(``proposal``) and that a text (``rendering``); ``advice`` looks at LiteLLM's own settings, and
``command`` does the asking, reading and writing.
"""
