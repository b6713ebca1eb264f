-- Functions that all scripts share; redis_link.py puts this file before each script. Times are
-- seconds of the caller's clock, in ARGV as text. All keys begin with the same hash tag: they lie
-- on one node of a cluster, and a script may build the names of its keys from ARGV.
--
--   PREFIX:s:SESSION   hash   turns, tier, first, last, replies (digests, one a line), agent
--                             and request (who asked last), "sticky:MODEL" = "UNTIL TIER"
--   PREFIX:sessions    zset   session by the time of its last use
--   PREFIX:p:PURSE     hash   tokens by scope, and "touched": when some were last counted
--   PREFIX:h:SCOPE     hash   tokens by minute
--   PREFIX:r:SCOPE     hash   "EXPIRES TOKENS" by ticket
--   PREFIX:t:TICKET    list   the scopes in which a ticket has set tokens aside
--   PREFIX:c:HOUR      set    the rows of that hour's counters: "AGENT\tTIER"
--   PREFIX:c:HOUR:ROW  hash   the counters by name
--   PREFIX:o:CALL      text   marks a write that was added, so that no second one adds it again
--   PREFIX:breakers    hash   "[FAILURES, DEGRADED_UNTIL, COOLDOWN]" by tier
--   PREFIX:events      stream events as JSON; an entry's id begins with the event's number
--   PREFIX:records     stream id, at, agent, session and body of exchanges, the last ones
--   PREFIX:records:bytes  text how long all their bodies are together
--   PREFIX:event       text   the last event's number

local PREFIX = KEYS[1]
local HOUR, DAY = 3600, 86400  -- callers decide what is over; a key ends some time after that
local LAG = 1  -- minutes that a replica's clock may lag behind

local function expire(key, seconds)
  redis.call('EXPIRE', key, math.max(1, math.ceil(seconds)))
end

-- The purse of a scope: session:ID:tier:T is in session:ID, so the two are forgotten together.
local function purse_of(scope)
  return string.match(scope, '^session:[^:]*') or scope
end

local function purse_key(scope)
  return PREFIX .. ':p:' .. purse_of(scope)
end

-- Forget a session, but not what it has spent: its purse ends by itself.
local function forget(session)
  redis.call('ZREM', PREFIX .. ':sessions', session)
  return redis.call('DEL', PREFIX .. ':s:' .. session)
end

-- Forget sessions beyond `most`, `step` at most; return how many. They are the oldest of the API
-- keys that have most, or of all if no key has two, so that no key pushes out another's.
local function forget_beyond(most, step)
  local over = math.min(step, redis.call('ZCARD', PREFIX .. ':sessions') - most)
  if over <= 0 then
    return 0
  end
  local sessions, by_key = redis.call('ZREVRANGE', PREFIX .. ':sessions', 0, -1), {}
  for _, session in ipairs(sessions) do
    local key = string.sub(session, 33)
    by_key[key] = by_key[key] or {}
    table.insert(by_key[key], session)
  end
  local left = over
  while left > 0 do
    local most_of_a_key = 0
    for _, of_key in pairs(by_key) do
      most_of_a_key = math.max(most_of_a_key, #of_key)
    end
    if most_of_a_key < 2 then  -- each session that is left has a key of its own
      for i = #sessions, 1, -1 do
        if left > 0 and by_key[string.sub(sessions[i], 33)][1] == sessions[i] then
          forget(sessions[i])
          left = left - 1
        end
      end
      break
    end
    for _, of_key in pairs(by_key) do
      if #of_key == most_of_a_key then
        for _ = 1, math.min(left, math.max(1, math.floor((most_of_a_key + 1) / 4))) do
          forget(table.remove(of_key))
          left = left - 1
        end
      end
    end
  end
  return over
end

-- Return the tokens used in a scope, and whether its purse is still in use.
local function used_of(scope, now, ttl)
  local found = redis.call('HMGET', purse_key(scope), 'touched', scope)
  if not found[1] or now - tonumber(found[1]) > ttl then
    return 0, false
  end
  return tonumber(found[2] or 0), true
end

-- Return the tokens of the hour that ends now, its buckets as {minute, tokens}, and their key and
-- the present minute. `tidy`: forget the minutes that are over; tokens of a minute further ahead
-- than LAG were counted by a clock that has been put back since, and count as spent now.
local function hour_of(scope, now, tidy)
  local key, minute, sum, buckets = PREFIX .. ':h:' .. scope, math.floor(now / 60), 0, {}
  local raw = redis.call('HGETALL', key)
  for i = 1, #raw, 2 do
    local held, tokens = tonumber(raw[i]), tonumber(raw[i + 1])
    if held > minute - 60 then
      sum = sum + tokens
      buckets[#buckets + 1] = {held, tokens}
    end
    if tidy and (held <= minute - 60 or held > minute + LAG) then
      redis.call('HDEL', key, raw[i])
      if held > minute then
        redis.call('HINCRBY', key, minute, raw[i + 1])
      end
    end
  end
  return sum, buckets, key, minute
end

local function count_of(scope, rolling, now, ttl)
  if rolling then
    return (hour_of(scope, now))
  end
  return (used_of(scope, now, ttl))
end

-- Return the tokens that tickets other than `own` have set aside in a scope.
local function reserved_in(scope, now, own)
  local key = PREFIX .. ':r:' .. scope
  local raw = redis.call('HGETALL', key)
  local sum = 0
  for i = 1, #raw, 2 do
    local expires, tokens = string.match(raw[i + 1], '(%S+) (%S+)')
    if tonumber(expires) <= now then
      redis.call('HDEL', key, raw[i])
    elseif raw[i] ~= own then
      sum = sum + tonumber(tokens)
    end
  end
  return sum
end

local function release(ticket)
  local key = PREFIX .. ':t:' .. ticket
  for _, scope in ipairs(redis.call('LRANGE', key, 0, -1)) do
    redis.call('HDEL', PREFIX .. ':r:' .. scope, ticket)
  end
  redis.call('DEL', key)
end

-- Return a session for the caller: its hash; its fields as pairs; its tokens used, reserved, and
-- used by estimate.
local function shown(session, now, ttl)
  local scope = 'session:' .. session
  return {
    session,
    redis.call('HGETALL', PREFIX .. ':s:' .. session),
    (used_of(scope, now, ttl)),
    reserved_in(scope, now, ''),
    (used_of(scope .. ':estimated', now, ttl)),
  }
end
