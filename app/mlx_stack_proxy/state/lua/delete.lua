-- ARGV: session
redis.call('DEL', PREFIX .. ':p:session:' .. ARGV[1])
return forget(ARGV[1])
