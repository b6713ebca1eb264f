-- ARGV: now, ttl, call, then what `add_counts` takes
if not made_before(ARGV[3]) then
  add_counts(4, #ARGV)
end
return 1
