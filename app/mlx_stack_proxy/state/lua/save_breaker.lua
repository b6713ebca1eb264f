-- ARGV: tier, state
redis.call('HSET', PREFIX .. ':breakers', ARGV[1], ARGV[2])
expire(PREFIX .. ':breakers', DAY)
return 1
