-- ARGV: now, ttl, events' retention, most rows of a kind to forget; most sessions, events, records,
-- and bytes of records to keep
-- Returns how many sessions and events it has forgotten.
local now, ttl, step = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[4])
local index, events, sum = PREFIX .. ':sessions', PREFIX .. ':events', 0

local function forget_all(sessions)
  for _, name in ipairs(sessions) do
    forget(name)
  end
  sum = sum + #sessions
end

-- Return the oldest sessions of the API key that has most, or of all if no key has two, so that no
-- key pushes out another's.
local function of_the_busiest_key(sessions, most)
  local by_key, busiest = {}, {}
  for _, session in ipairs(sessions) do
    local key = string.sub(session, 33)
    by_key[key] = by_key[key] or {}
    table.insert(by_key[key], session)
    if #by_key[key] > #busiest then
      busiest = by_key[key]
    end
  end
  local named = #busiest > 1 and busiest or sessions
  return {unpack(named, 1, math.min(most, math.max(1, math.floor((#named + 1) / 4))))}
end

forget_all(redis.call('ZRANGEBYSCORE', index, '-inf', '(' .. (now - ttl), 'LIMIT', 0, step))
local over = math.min(step, redis.call('ZCARD', index) - tonumber(ARGV[5]))
while over > 0 do
  local named = of_the_busiest_key(redis.call('ZRANGE', index, 0, -1), over)
  forget_all(named)
  over = over - #named
end

for _, entry in ipairs(redis.call('XRANGE', events, '-', '+', 'COUNT', step)) do
  if tonumber(entry[2][2]) >= now - tonumber(ARGV[3]) then
    break
  end
  sum = sum + redis.call('XDEL', events, entry[1])
end
redis.call('XTRIM', events, 'MAXLEN', ARGV[6])

local records, size = PREFIX .. ':records', PREFIX .. ':records:bytes'
local bytes = tonumber(redis.call('GET', size) or 0)
while redis.call('XLEN', records) > tonumber(ARGV[7]) or bytes > tonumber(ARGV[8]) do
  local oldest = redis.call('XRANGE', records, '-', '+', 'COUNT', 1)[1]
  if not oldest then
    redis.call('DEL', size)
    break
  end
  bytes = redis.call('DECRBY', size, #oldest[2][10])
  redis.call('XDEL', records, oldest[1])
end
return sum
