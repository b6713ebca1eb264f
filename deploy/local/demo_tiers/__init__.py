"""The demo tiers: six tools, a question generator, and what trains and measures two tiny models.

Nothing in `tools`, `values`, `phrases`, `questions`, `chat_template` needs torch.
"""
