"""Tiers: where an exchange starts, what comes next, who waits, what is left out for a while."""
