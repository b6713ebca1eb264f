-- ARGV: session
-- Returns 1 if the session was known, else 0.
redis.call('DEL', PREFIX .. ':p:session:' .. ARGV[1])
return forget(ARGV[1])
