-- ARGV: now, ttl, call (the write's name), the change as JSON (`_content` in redis.py), the events'
-- retention, most counters of an hour's row, most sessions, how many more are let in between two
-- times that some are forgotten
-- Returns for each scope that is settled its tokens before; {} if a write of this name was added
-- before.
local now, ttl, change = tonumber(ARGV[1]), tonumber(ARGV[2]), cjson.decode(ARGV[4])
local keep, most_counters = tonumber(ARGV[5]) + DAY, tonumber(ARGV[6])

-- Count tokens in a scope's purse; return the scope's tokens before.
local function spend(scope, tokens)
  local before, fresh = used_of(scope, now, ttl)
  if tokens ~= 0 then
    local key = purse_key(scope)
    if not fresh then
      redis.call('DEL', key)
    end
    redis.call('HINCRBY', key, scope, string.format('%.0f', tokens))
    local touched = tonumber(redis.call('HGET', key, 'touched') or 0)
    redis.call('HSET', key, 'touched', string.format('%.17g', math.max(now, touched)))
    expire(key, ttl + HOUR)
  end
  return before
end

-- Count tokens in a scope's rolling hour; return the hour's tokens before.
local function spend_in_hour(scope, tokens)
  local before, _, key, minute = hour_of(scope, now, true)
  if tokens ~= 0 then
    redis.call('HINCRBY', key, minute, string.format('%.0f', tokens))
  end
  expire(key, 62 * 60)
  return before
end

-- Add counters to the row `of`: {hour, agent, tier}.
local function add_counts(of, counters)
  local rows, row = PREFIX .. ':c:' .. string.format('%.0f', of[1]), of[2] .. '\t' .. of[3]
  local key = rows .. ':' .. row
  redis.call('SADD', rows, row)
  for name, number in pairs(counters) do
    if string.find(name, ':', 1, true) and redis.call('HLEN', key) >= most_counters
        and redis.call('HEXISTS', key, name) == 0 then
      name = string.match(name, '^[^:]*') .. ':other'
    end
    redis.call('HINCRBYFLOAT', key, name, number)
  end
  expire(rows, keep)
  expire(key, keep)
end

-- Append to the stream, whose ids are the events' numbers. The numbers go on even when all events
-- are gone, so that a reader who continues after the last one that it has seen misses none.
local function add_events(events)
  local key, counter = PREFIX .. ':events', PREFIX .. ':event'
  for _, event in ipairs(events) do
    local id = redis.call('INCR', counter) .. '-0'
    redis.call('XADD', key, id, 'time', event[1], 'body', event[2])
  end
  expire(key, keep)
  expire(counter, keep + 29 * DAY)
end

local function add_records(records)
  local key, size = PREFIX .. ':records', PREFIX .. ':records:bytes'
  for _, r in ipairs(records) do
    redis.call('XADD', key, '*', 'id', r[1], 'at', r[2], 'agent', r[3], 'session', r[4], 'body', r[5])
    redis.call('INCRBY', size, #r[5])
  end
  expire(key, keep)
  expire(size, keep)
end

local function add_sticky(key)
  local fields = redis.call('HGETALL', key)
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, 7) == 'sticky:'
        and tonumber(string.match(fields[i + 1], '%S+')) <= now then
      redis.call('HDEL', key, fields[i])
    end
  end
  for model, entry in pairs(change.sticky) do
    redis.call('HSET', key, 'sticky:' .. model, entry)
  end
end

-- Add the digest of a text reply, and keep the last ones.
local function add_reply(key)
  local replies = {}
  for reply in string.gmatch(redis.call('HGET', key, 'replies') or '', '[^\n]+') do
    replies[#replies + 1] = reply
  end
  replies[#replies + 1] = change.reply
  local first = math.max(1, #replies - change.replies_kept + 1)
  redis.call('HSET', key, 'replies', table.concat(replies, '\n', first))
end

local function add_to_session(session)
  local key, index = PREFIX .. ':s:' .. session, PREFIX .. ':sessions'
  local first, last = unpack(redis.call('HMGET', key, 'first', 'last'))
  if last and now - tonumber(last) > ttl then
    forget(session)
    first, last = nil, nil
  end
  redis.call('HINCRBY', key, 'turns', change.turns)
  if change.tier ~= '' then
    redis.call('HSET', key, 'tier', change.tier)
  end
  if change.agent ~= '' then
    redis.call('HSET', key, 'agent', change.agent, 'request', change.request)
  end
  if next(change.sticky) then
    add_sticky(key)
  end
  if change.reply ~= '' then
    add_reply(key)
  end
  if not first or now < tonumber(first) then
    redis.call('HSET', key, 'first', ARGV[1])
  end
  if not last or now >= tonumber(last) then
    redis.call('HSET', key, 'last', ARGV[1])
  end
  redis.call('ZADD', index, math.max(now, tonumber(last or 0)), session)
  if not last and redis.call('ZCARD', index) > tonumber(ARGV[7]) + tonumber(ARGV[8]) then
    forget_beyond(tonumber(ARGV[7]), tonumber(ARGV[8]))
  end
  expire(key, ttl + HOUR)
  expire(index, ttl + HOUR)
end

if change.ticket ~= '' then
  release(change.ticket)
end
-- A write of this name was added before; its answer was lost on the way.
if not redis.call('SET', PREFIX .. ':o:' .. ARGV[3], '1', 'NX', 'EX', 600) then
  return {}
end
local before = {}
for i, amount in ipairs(change.amounts) do
  before[i] = (amount[2] and spend_in_hour or spend)(amount[1], amount[3])
end
for _, row in ipairs(change.counts) do
  add_counts(row[1], row[2])
end
for tier, state in pairs(change.breakers) do
  redis.call('HSET', PREFIX .. ':breakers', tier, state)
  expire(PREFIX .. ':breakers', DAY)
end
if #change.events > 0 then
  add_events(change.events)
end
if #change.records > 0 then
  add_records(change.records)
end
if change.session ~= '' then
  add_to_session(change.session)
end
return before
