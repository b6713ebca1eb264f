"""What real open models do with tools: directly, and through the proxy."""
