-- ARGV: most events, retention in seconds, then TIME, BODY each
-- A stream whose ids are the events' numbers; what is too old, tidy.lua forgets.
local key, counter = PREFIX .. ':events', PREFIX .. ':event'
for i = 3, #ARGV, 2 do
  local id = redis.call('INCR', counter) .. '-0'
  redis.call('XADD', key, 'MAXLEN', '~', ARGV[1], id, 'time', ARGV[i], 'body', ARGV[i + 1])
end
expire(key, tonumber(ARGV[2]) + DAY)
-- The numbers go on, also when all events are gone: who reads on from one misses none.
expire(counter, tonumber(ARGV[2]) + 30 * DAY)
return 1
