"""``mlx-stack-proxy init``: write a first ``config.yaml`` from what is on this machine already.

``command`` asks LiteLLM, reads files, prints and writes; ``model_groups`` brings their models into
one shape; ``proposal`` makes tiers of the model groups, and the file's text of the tiers.
``advice`` finds settings in LiteLLM's own file that work against the proxy.
"""
