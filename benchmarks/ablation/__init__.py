"""``make ablate``: what recorded cases lose without each format, repair, doubt and detector."""
