-- ARGV: now, ttl, offset, limit, agent ('': of all)
-- Returns {sessions, number}: each session as `shown` does, {} for one that can't be read, the last
-- used first; and how many sessions the agent has used last (0 without an agent).
local now, ttl, offset, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local index, agent = PREFIX .. ':sessions', ARGV[5]
local found, number = {}, 0

local function add(name)
  local ok, one = pcall(shown, name, now, ttl)
  found[#found + 1] = ok and one or {}
end

if agent == '' then
  local page = {'LIMIT', offset, limit}
  for _, name in ipairs(redis.call('ZREVRANGEBYSCORE', index, '+inf', now - ttl, unpack(page))) do
    add(name)
  end
else
  for _, name in ipairs(redis.call('ZREVRANGEBYSCORE', index, '+inf', now - ttl)) do
    if redis.pcall('HGET', PREFIX .. ':s:' .. name, 'agent') == agent then
      number = number + 1
      if number > tonumber(offset) and #found < tonumber(limit) then
        add(name)
      end
    end
  end
end
return {found, number}
