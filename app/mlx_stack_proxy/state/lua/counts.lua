-- ARGV: the first and the last hour
-- Returns for each row {hour, row, its counters as pairs}.
local found = {}
for hour = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local rows = PREFIX .. ':c:' .. string.format('%.0f', hour)
  for _, row in ipairs(redis.call('SMEMBERS', rows)) do
    found[#found + 1] = {hour, row, redis.call('HGETALL', rows .. ':' .. row)}
  end
end
return found
