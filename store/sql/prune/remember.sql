-- First phase: from here on the ids of these runs stay taken without the runs. A repeat changes nothing, so that the time
-- that must pass before the second phase begins once.
with settled as materialized (
  select run.job_id, run.tenant_id, run.fingerprint, run.status, run.completed_at
    from unnest(%(job_ids)s::uuid[]) as asked(job_id)
    cross join lateral (select * from run where run.job_id = asked.job_id and completed_at is not null offset 0) run
   order by run.job_id
)
insert into pruned_run (job_id, tenant_id, fingerprint, status, record_time, settled_at, pruned_at)
select settled.job_id, settled.tenant_id, settled.fingerprint, settled.status, input.record_time, settled.completed_at,
       coalesce(%(now)s::timestamptz, now())
  from settled
  left join lateral (select record_time from run_input where run_input.job_id = settled.job_id offset 0) input on true
 order by settled.job_id
on conflict (job_id) do update
   set status = excluded.status, settled_at = excluded.settled_at, pruned_at = excluded.pruned_at
 where pruned_run.settled_at <> excluded.settled_at
returning job_id
