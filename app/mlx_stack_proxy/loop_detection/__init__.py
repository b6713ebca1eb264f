"""Loop detection: agents that loop, and replies that repeat themselves."""
