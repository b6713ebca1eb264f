-- ARGV: now, ttl, session, turns, tier, window, most turns in it, most sessions,
--       then MODEL, "UNTIL TIER" or "" for each sticky tier
local now, ttl, session = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local key, index = PREFIX .. ':s:' .. session, PREFIX .. ':sessions'

local idle = redis.call('ZRANGEBYSCORE', index, '-inf', '(' .. (now - ttl), 'LIMIT', 0, STEP)
for _, name in ipairs(idle) do
  forget(name)
end

redis.call('HINCRBY', key, 'turns', ARGV[4])
if ARGV[5] ~= '' then
  redis.call('HSET', key, 'tier', ARGV[5])
end
if ARGV[6] ~= '' then
  local window = redis.call('HGET', key, 'window') or ''
  redis.call('HSET', key, 'window', last_of(window .. ARGV[6], tonumber(ARGV[7])))
end
for i = 9, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', key, 'sticky:' .. ARGV[i])
  else
    redis.call('HSET', key, 'sticky:' .. ARGV[i], ARGV[i + 1])
  end
end
redis.call('HSETNX', key, 'first', ARGV[1])
local last = tonumber(redis.call('HGET', key, 'last') or 0)
if now >= last then
  redis.call('HSET', key, 'last', ARGV[1])
end
redis.call('ZADD', index, math.max(now, last), session)
expire(key, ttl + DAY)
expire(index, ttl + DAY)

local over = redis.call('ZCARD', index) - tonumber(ARGV[8])
if over > 0 then
  for _, name in ipairs(redis.call('ZRANGE', index, 0, math.min(over, STEP) - 1)) do
    forget(name)
  end
end
return 1
