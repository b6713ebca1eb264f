-- ARGV: session
return forget(ARGV[1])
