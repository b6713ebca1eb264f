-- ARGV: now, ttl, call, session, turns, tier, window, most turns in it, most sessions,
--       then MODEL, "UNTIL TIER" or "" for each sticky tier
local now, ttl, session = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[4]
local key, index = PREFIX .. ':s:' .. session, PREFIX .. ':sessions'
if made_before(ARGV[3]) then
  return 0
end

local idle = redis.call('ZRANGEBYSCORE', index, '-inf', '(' .. (now - ttl), 'LIMIT', 0, STEP)
for _, name in ipairs(idle) do
  forget(name)
end

redis.call('HINCRBY', key, 'turns', ARGV[5])
if ARGV[6] ~= '' then
  redis.call('HSET', key, 'tier', ARGV[6])
end
if ARGV[7] ~= '' then
  local window = redis.call('HGET', key, 'window') or ''
  redis.call('HSET', key, 'window', last_of(window .. ARGV[7], tonumber(ARGV[8])))
end
for i = 10, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', key, 'sticky:' .. ARGV[i])
  else
    redis.call('HSET', key, 'sticky:' .. ARGV[i], ARGV[i + 1])
  end
end
local first = redis.call('HGET', key, 'first')
if not first or now < tonumber(first) then
  redis.call('HSET', key, 'first', ARGV[1])
end
local last = tonumber(redis.call('HGET', key, 'last') or 0)
if now >= last then
  redis.call('HSET', key, 'last', ARGV[1])
end
redis.call('ZADD', index, math.max(now, last), session)
expire(key, ttl + DAY)
expire(index, ttl + DAY)

local over = redis.call('ZCARD', index) - tonumber(ARGV[9])
if over > 0 then
  for _, name in ipairs(redis.call('ZRANGE', index, 0, math.min(over, STEP) - 1)) do
    forget(name)
  end
end
return 1
