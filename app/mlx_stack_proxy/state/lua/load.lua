-- ARGV: now, ttl, session, then for each scope SCOPE, ROLLING ("1" or "0")
-- Returns the session as `shown` does, and the scopes' counts in their order.
local now, ttl, session = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local counts = {}
for i = 4, #ARGV, 2 do
  counts[#counts + 1] = count_of(ARGV[i], ARGV[i + 1] == '1', now, ttl)
end
local found = shown(session, now, ttl)
found[#found + 1] = counts
return found
