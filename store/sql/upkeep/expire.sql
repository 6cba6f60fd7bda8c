-- Takes runs from holders that vanished, in the transaction of pick_expired.sql: a checkpoint leaves no trace in the
-- row, so the log's last seq must be read by a statement that began after the lock. Queued again for the target it was taken
-- for, in its old place; DEAD when its claims expired too often, one after the other.
with lost as materialized (
  select found.*, coalesce(%(now)s::timestamptz, now()) as at, new_event_id() as event_id,
         'lease expired ' || found.lost_leases || ' times in a row, last held by ' || found.lease_owner as error
    from unnest(%(job_ids)s::uuid[]) as asked(job_id)
    cross join lateral (
      select run.job_id, run.shard, run.attempt + 1 as attempt, run.lease_owner, run.lost_leases + 1 as lost_leases,
             run.lost_leases + 1 >= %(ceiling)s as dead, run.resume_target as target,
             (select max(event.seq) from event where event.job_id = run.job_id) as seq
        from run
       where run.job_id = asked.job_id and run.status = 'RUNNING'
         and run.lease_until < coalesce(%(now)s::timestamptz, now()) offset 0) found
), moved as (
  update run
     set status = case when lost.dead then 'DEAD' else 'QUEUED' end, lost_leases = lost.lost_leases,
         next_target = case when not lost.dead then lost.target end, resume_target = null,
         seq = lost.seq + lost.dead::integer, lease_owner = null, lease_until = null,
         completed_at = case when lost.dead then lost.at end,
         updated_at = greatest(lost.at, updated_at + interval '1 us')
    from lost
   where run.job_id = lost.job_id and run.job_id = any (array(select job_id from lost))
  returning lost.*
), told as (
  insert into run_outcome (job_id, error, last_error, last_error_at)
  select job_id, case when dead then error end, error, at from moved
  on conflict (job_id) do update
     set error = excluded.error, last_error = excluded.last_error, last_error_at = excluded.last_error_at
), announced as (
  insert into event (job_id, seq, event_id, occurred_at, attempt, type, status, error)
  select job_id, seq + 1, event_id, at, attempt, 6, 'DEAD', error from moved where dead
), queued as (
  insert into relay_queue (shard, seq, job_id) select shard, seq + 1, job_id from moved where dead
)
select job_id, dead, error from moved
