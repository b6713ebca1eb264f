-- ARGV: now, ttl, events' retention, most rows of a kind to forget; most sessions, events, records,
-- and bytes of records to keep
-- Returns how many sessions and events it has forgotten.
local now, ttl, step = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[4])
local index, events, sum = PREFIX .. ':sessions', PREFIX .. ':events', 0

local idle = '(' .. (now - ttl)
for _, name in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', idle, 'LIMIT', 0, step)) do
  sum = sum + 1
  forget(name)
end
sum = sum + forget_beyond(tonumber(ARGV[5]), step)

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
