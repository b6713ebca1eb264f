"""The command ``init``: write a first ``config.yaml`` from what is on this machine already."""
