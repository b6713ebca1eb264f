-- ARGV: now, ttl, call, session, turns, tier, most sessions; the number of sticky tiers, MODEL and
--       "UNTIL TIER" of each; how many arguments of `add_counts` follow, and these; then, if
--       anything is to be settled, what `settle` takes. Returns what that returns.
local now, ttl, session = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[4]
local key, index = PREFIX .. ':s:' .. session, PREFIX .. ':sessions'
local stuck_end = 8 + 2 * tonumber(ARGV[8])
local counts_end = stuck_end + 1 + tonumber(ARGV[stuck_end + 1])
if made_before(ARGV[3]) then
  if #ARGV > counts_end then
    release(ARGV[counts_end + 1])
  end
  return {}
end
local before = {}
if #ARGV > counts_end then
  before = settle(counts_end + 1, #ARGV, now, ttl)
end
if counts_end > stuck_end + 1 then
  add_counts(stuck_end + 2, counts_end)
end

local idle = redis.call('ZRANGEBYSCORE', index, '-inf', '(' .. (now - ttl), 'LIMIT', 0, STEP)
for _, name in ipairs(idle) do
  forget(name)
end

redis.call('HINCRBY', key, 'turns', ARGV[5])
if ARGV[6] ~= '' then
  redis.call('HSET', key, 'tier', ARGV[6])
end
if stuck_end > 8 then
  local fields = redis.call('HGETALL', key)
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, 7) == 'sticky:'
        and tonumber(string.match(fields[i + 1], '%S+')) <= now then
      redis.call('HDEL', key, fields[i])
    end
  end
end
for i = 9, stuck_end, 2 do
  redis.call('HSET', key, 'sticky:' .. ARGV[i], ARGV[i + 1])
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

local over = redis.call('ZCARD', index) - tonumber(ARGV[7])
if over > 0 then
  for _, name in ipairs(redis.call('ZRANGE', index, 0, math.min(over, STEP) - 1)) do
    forget(name)
  end
end
return before
