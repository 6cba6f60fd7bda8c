-- Locks runs whose lease ran out, longest first. A holder that is just writing keeps its run for this time.
select run.job_id
  from run
 where run.status = 'RUNNING' and run.lease_until < coalesce(%(now)s::timestamptz, now())
 order by run.lease_until
 limit %(limit)s
   for no key update skip locked
