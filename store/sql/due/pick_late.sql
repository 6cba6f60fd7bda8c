-- Locks runs that nobody works on and whose deadline has passed, longest first. Who is just claiming one keeps it.
select run.job_id
  from run
 where run.deadline_at <= coalesce(%(now)s::timestamptz, now()) and run.lease_until is null and run.completed_at is null
 order by run.deadline_at
 limit %(limit)s
   for no key update skip locked
