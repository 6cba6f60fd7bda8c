-- Cancels, behind lock.sql: the log's last seq is read while the row is ours. The fence goes up, so that whoever holds
-- the run writes nothing more. Each element is told what became of it.
with asked as materialized (
  select m.*, coalesce(%(now)s::timestamptz, now()) as at
    from json_to_recordset(%(moves)s::json) as m(
      job_id uuid, tenant_id text, event_id uuid, reason text, event_reason text)
   order by job_id
), seen as materialized (
  select asked.*, found.*,
         case when found.status is null then 'UNKNOWN'
              when found.status in ('QUEUED', 'RUNNING', 'WAITING') then 'APPLIED'
              else 'TERMINAL' end as outcome
    from asked
    left join lateral (
      select run.status, run.shard, run.attempt + (run.status <> 'QUEUED')::integer as attempt,
             (select max(event.seq) + 1 from event where event.job_id = run.job_id) as next_seq
        from run
       where run.job_id = asked.job_id and run.tenant_id = asked.tenant_id offset 0) found on true
), cancelled as (
  update run
     set status = 'CANCELLED', fence = fence + 1, seq = seen.next_seq, next_target = null, resume_target = null,
         outstanding_step = null, due_at = null, due_move = null, answer_by = null, lease_owner = null, lease_until = null,
         completed_at = seen.at,
         updated_at = greatest(seen.at, updated_at + interval '1 us')
    from seen
   where run.job_id = seen.job_id and seen.outcome = 'APPLIED'
     and run.job_id = any (array(select job_id from seen where outcome = 'APPLIED'))
  returning seen.*
), ended as (
  insert into run_outcome (job_id, error) select job_id, reason from cancelled
  on conflict (job_id) do update set error = excluded.error, composed_request = null
), announced as (
  insert into event (job_id, seq, event_id, occurred_at, attempt, type, status, error)
  select job_id, next_seq, event_id, at, attempt, 7, 'CANCELLED', event_reason from cancelled
), queued as (
  insert into relay_queue (shard, seq, job_id) select shard, next_seq, job_id from cancelled
)
select job_id, outcome, case when outcome = 'APPLIED' then 'CANCELLED' else status end as status from seen
