-- How many runs wait for a worker and are due, counted up to a limit.
select count(*)::integer as queued
  from (
    select from run
     where next_target is not null and lost_leases < 2 and run_after <= coalesce(%(now)s::timestamptz, now())
     limit %(limit)s) counted
