-- The next page of settled runs that are old enough to go, on from where the last page ended: is one remembered yet, and for
-- long enough? What was reopened meanwhile and settled again is not the run that was remembered. `size` is about its rows.
select run.job_id, run.completed_at, run.seq + run.steps_total + run.items_total as size,
       memory.pruned_at is null as is_new,
       coalesce(memory.pruned_at < coalesce(%(now)s::timestamptz, now()) - make_interval(secs => %(delay_seconds)s::float8),
                false) as is_ready
  from run
  left join lateral (
    select pruned_at from pruned_run
     where pruned_run.job_id = run.job_id and pruned_run.settled_at = run.completed_at offset 0) memory on true
 where run.completed_at < coalesce(%(now)s::timestamptz, now()) - make_interval(secs => %(prune_after_seconds)s::float8)
   and run.completed_at >= %(after_time)s::timestamptz
   and (run.completed_at, run.job_id) > (%(after_time)s::timestamptz, %(after_job)s::uuid)
 order by run.completed_at, run.job_id
 limit %(limit)s
