"""Tool calls: from text to calls, from broken JSON to arguments, from schemas to validators."""
