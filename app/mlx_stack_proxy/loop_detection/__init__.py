"""Loop detection: agents that go round in circles, and replies that do."""
