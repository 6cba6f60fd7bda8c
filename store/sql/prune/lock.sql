-- Second phase, first look: locks the runs that may still go. What somebody else works on is left for the next time.
select run.job_id, run.shard::integer as shard
  from run
 where run.job_id = any (%(job_ids)s::uuid[])
   and (select 1 from pruned_run
         where pruned_run.job_id = run.job_id and pruned_run.settled_at = run.completed_at
           and pruned_at < coalesce(%(now)s::timestamptz, now()) - make_interval(secs => %(delay_seconds)s::float8)
         limit 1) is not null
 order by run.job_id
   for update of run skip locked
