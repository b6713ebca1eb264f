"""``mlx-stack-proxy init``: write a first ``config.yaml`` from what is on this machine already.

``looking`` asks LiteLLM and reads files; ``model_groups`` brings their models into one shape;
``proposal`` makes tiers of the model groups; ``rendering`` makes a file's text of the tiers.
``advice`` finds settings in LiteLLM's own file that work against the proxy. ``command`` runs these
steps, prints and writes.
"""
