-- ARGV: now, ttl, call, ticket, then SCOPE, ROLLING ("1" or "0"), tokens each
-- Returns each scope's tokens before.
release(ARGV[4])
if made_before(ARGV[3]) then
  return {}
end
return settle(4, #ARGV, tonumber(ARGV[1]), tonumber(ARGV[2]))
