-- ARGV: now, ttl, call, ticket, tokens, then SCOPE, ROLLING ("1" or "0") each
local now, ttl = tonumber(ARGV[1]), tonumber(ARGV[2])
release(ARGV[4])
if made_before(ARGV[3]) then
  return 0
end
for i = 6, #ARGV, 2 do
  if ARGV[i + 1] == '1' then
    local buckets, minute, key = hour_of(ARGV[i], now)
    local newest = buckets[#buckets]
    if newest and newest[1] > minute then
      minute = newest[1]
    end
    redis.call('HINCRBY', key, minute, ARGV[5])
    expire(key, 3 * 3600)
  else
    spend(ARGV[i], ARGV[5], now, ttl)
  end
end
return 1
