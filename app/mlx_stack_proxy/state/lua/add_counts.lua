-- ARGV: now, ttl, call, retention in seconds, most agents in an hour, most counters in a row; then
-- HOUR, AGENT, TIER, the number of counters, and NAME and NUMBER of each, for each row
if made_before(ARGV[3]) then
  return 1
end
local keep, most_agents, most = tonumber(ARGV[4]) + DAY, tonumber(ARGV[5]), tonumber(ARGV[6])

local function agent_in(hour, agent)
  local agents = PREFIX .. ':a:' .. hour
  if agent == '' or redis.call('SISMEMBER', agents, agent) == 1 then
    return agent
  end
  if redis.call('SCARD', agents) >= most_agents then
    agent = 'other'
  end
  redis.call('SADD', agents, agent)
  expire(agents, keep)
  return agent
end

local i = 7
while i <= #ARGV do
  local hour, agent, last = ARGV[i], agent_in(ARGV[i], ARGV[i + 1]), i + 3 + 2 * ARGV[i + 3]
  local rows, row = PREFIX .. ':c:' .. hour, agent .. '\t' .. ARGV[i + 2]
  local key = rows .. ':' .. row
  redis.call('SADD', rows, row)
  for j = i + 4, last, 2 do
    local name = ARGV[j]
    if string.find(name, ':', 1, true) and redis.call('HLEN', key) >= most
        and redis.call('HEXISTS', key, name) == 0 then
      name = string.match(name, '^[^:]*') .. ':other'
    end
    redis.call('HINCRBYFLOAT', key, name, ARGV[j + 1])
  end
  expire(rows, keep)
  expire(key, keep)
  i = last + 1
end
return 1
