-- ARGV: now, ttl, session
local now, ttl, session = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local last = redis.call('HGET', PREFIX .. ':s:' .. session, 'last')
if last and now - tonumber(last) > ttl then
  forget(session)
end
return shown(session, now, ttl)
