-- ARGV: now, ttl, events' retention, most sessions and most events to forget, most events to keep
-- Returns how many sessions and events it has forgotten for their age.
local now, ttl, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[4])
local oldest = now - tonumber(ARGV[3])
local sum = 0
local idle = redis.call(
  'ZRANGEBYSCORE', PREFIX .. ':sessions', '-inf', '(' .. (now - ttl), 'LIMIT', 0, most)
for _, name in ipairs(idle) do
  sum = sum + 1
  forget(name)
end
for _, entry in ipairs(redis.call('XRANGE', PREFIX .. ':events', '-', '+', 'COUNT', most)) do
  if tonumber(entry[2][2]) >= oldest then
    break
  end
  sum = sum + redis.call('XDEL', PREFIX .. ':events', entry[1])
end
-- This deletes a few hundred entries at most: write.lua keeps the stream about this long.
redis.call('XTRIM', PREFIX .. ':events', 'MAXLEN', ARGV[5])
return sum
