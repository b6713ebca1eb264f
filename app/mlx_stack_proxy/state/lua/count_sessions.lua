-- ARGV: now, ttl
-- Returns how many sessions there are; 0 where somebody else has the key of their index.
local ok, count = pcall(
  redis.call, 'ZCOUNT', PREFIX .. ':sessions', tonumber(ARGV[1]) - tonumber(ARGV[2]), '+inf')
return ok and count or 0
