"""Tiers: where an exchange starts, which tier comes next, who waits, which tiers are degraded."""
