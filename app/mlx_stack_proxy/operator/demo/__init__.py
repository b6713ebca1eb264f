"""``mlx-stack-proxy demo``: ask a weak model ten questions, directly and through the proxy."""
