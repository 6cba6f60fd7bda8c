-- How many runs wait for a worker and are due, counted up to a limit; and whether this server takes no writes.
select count(*)::integer as queued, current_setting('transaction_read_only')::boolean as read_only
  from (
    select from run
     where next_target is not null and lost_leases < 2 and run_after <= coalesce(%(now)s::timestamptz, now())
     limit %(limit)s) counted
