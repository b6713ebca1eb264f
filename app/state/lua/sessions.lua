-- ARGV: now, ttl, offset, limit
local now, ttl = tonumber(ARGV[1]), tonumber(ARGV[2])
local found = {}
local names = redis.call(
  'ZREVRANGEBYSCORE', PREFIX .. ':sessions', '+inf', now - ttl, 'LIMIT', ARGV[3], ARGV[4])
for _, name in ipairs(names) do
  found[#found + 1] = shown(name, now, ttl)
end
return found
