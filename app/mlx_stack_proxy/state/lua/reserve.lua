-- ARGV: now, ttl, ticket, tokens, expires, least, then for each limit SCOPE, MOST
-- or "", ROLLING ("1" or "0")
-- Returns {0, used, ...} in the order of the limits; or, if a limit refuses, {its number from 1,
-- used, 1 if the tokens would fit without others' reservations else 0, seconds until there is room
-- as text}.
local now, ttl, ticket = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local tokens, expires = tonumber(ARGV[4]), tonumber(ARGV[5])
local least = tonumber(ARGV[6])

local function resets_in(scope, rolling, excess)
  if not rolling then
    local _, fresh = used_of(scope, now, ttl)
    return fresh and tonumber(redis.call('HGET', purse_key(scope), 'touched')) + ttl - now or ttl
  end
  local _, buckets = hour_of(scope, now)
  table.sort(buckets, function(a, b) return a[1] < b[1] end)
  for _, bucket in ipairs(buckets) do
    excess = excess - bucket[2]
    if excess <= 0 then
      return math.max(0, (bucket[1] + 60) * 60 - now)
    end
  end
  return 3600
end

local answer = {0}
for i = 7, #ARGV, 3 do
  answer[#answer + 1] = count_of(ARGV[i], ARGV[i + 2] == '1', now, ttl)
end
for i = 7, #ARGV, 3 do
  local scope, most, number = ARGV[i], tonumber(ARGV[i + 1]), (i - 7) / 3 + 1
  if most then
    local used = answer[number + 1]
    local left, others = most - used, reserved_in(scope, now, ticket)
    if others + (others > 0 and tokens or least) > left then
      local wait = resets_in(scope, ARGV[i + 2] == '1', least - left)
      return {number, used, least <= left and 1 or 0, string.format('%.3f', wait)}
    end
  end
end

release(ticket)
local seconds = expires - now
if seconds > 0 then
  local list = PREFIX .. ':t:' .. ticket
  for i = 7, #ARGV, 3 do
    local key = PREFIX .. ':r:' .. ARGV[i]
    redis.call('HSET', key, ticket, ARGV[5] .. ' ' .. ARGV[4])
    if redis.call('TTL', key) < seconds then
      expire(key, seconds + 3600)
    end
    redis.call('RPUSH', list, ARGV[i])
  end
  expire(list, seconds + 3600)
end
return answer
