-- ARGV: now, ttl, offset, limit
-- Returns each session as `shown` does, {} for one that can't be read; the last used first.
local now, ttl = tonumber(ARGV[1]), tonumber(ARGV[2])
local found = {}
local names = redis.call(
  'ZREVRANGEBYSCORE', PREFIX .. ':sessions', '+inf', now - ttl, 'LIMIT', ARGV[3], ARGV[4])
for _, name in ipairs(names) do
  local ok, one = pcall(shown, name, now, ttl)
  found[#found + 1] = ok and one or {}
end
return found
