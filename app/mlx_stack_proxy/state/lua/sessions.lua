-- ARGV: now, ttl, offset, limit, agent ('': of all)
-- Returns {sessions, number}: each session as `shown` does, {} for one that can't be read, the last
-- used first; and how many sessions there are.
local now, ttl, agent = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[5]
local first, limit = tonumber(ARGV[3]) + 1, tonumber(ARGV[4])
local found, number = {}, 0
for _, name in ipairs(redis.call('ZREVRANGEBYSCORE', PREFIX .. ':sessions', '+inf', now - ttl)) do
  if agent == '' or redis.pcall('HGET', PREFIX .. ':s:' .. name, 'agent') == agent then
    number = number + 1
    if number >= first and #found < limit then
      local ok, one = pcall(shown, name, now, ttl)
      found[#found + 1] = ok and one or {}
    end
  end
end
return {found, number}
