"""Real agents through the proxy, with a model that makes mistakes."""
