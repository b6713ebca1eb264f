"""`mlx-stack-proxy demo`: ten questions, asked of a weak model directly and through the proxy."""
