"""Tiers: where an exchange starts, which one is next, who waits, which ones are degraded."""
