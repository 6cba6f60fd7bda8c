-- Answers to parked steps, behind lock.sql, so that what is read here is newer than the lock. An element with an error
-- says that the answer broke its rules: the run fails, nothing is kept. A wait is answered by time alone. Each element is
-- told what became of it.
with asked as materialized (
  select m.*, coalesce(%(now)s::timestamptz, now()) as at
    from json_to_recordset(%(moves)s::json) as m(
      job_id uuid, tenant_id text, step text, event_id uuid, response jsonb, error text, event_error text,
      detail text)
   order by job_id
), seen as materialized (
  select asked.*, found.*,
         case when found.status is null then 'UNKNOWN'
              when found.answered is not null then 'ALREADY_DONE'
              when found.status = 'WAITING' and found.outstanding_step = asked.step and not found.sleeps then 'APPLIED'
              else 'WRONG_STATE' end as outcome,
         case when asked.error is null then 'QUEUED' else 'FAILED' end as status_after
    from asked
    left join lateral (
      select run.status, run.outstanding_step, run.shard, run.fence, coalesce(run.due_move = 'wake', false) as sleeps,
             1 + case when run.attempt_step = asked.step then run.attempt else 0 end as attempt,
             (select max(event.seq) + 1 from event where event.job_id = run.job_id) as next_seq,
             (select coalesce(max(checkpoint.step_index) + 1, 0) from checkpoint
               where checkpoint.job_id = run.job_id) as step_index,
             (select coalesce(checkpoint.response = coalesce(asked.response, 'null'), false) from checkpoint
               where checkpoint.job_id = run.job_id and checkpoint.step = asked.step limit 1) as answered
        from run
       where run.job_id = asked.job_id and run.tenant_id = asked.tenant_id offset 0) found on true
), moved as (
  update run
     set status = seen.status_after, seq = seen.next_seq, outstanding_step = null, due_at = null, due_move = null, answer_by = null,
         next_target = case when seen.error is null then resume_target end, resume_target = null,
         run_after = case when seen.error is null then seen.at else run_after end,
         attempt = case when seen.error is null then 0 else seen.attempt end,
         attempt_step = case when seen.error is null then null else seen.step end,
         completed_at = case when seen.error is null then null else seen.at end,
         updated_at = greatest(seen.at, updated_at + interval '1 us')
    from seen
   where run.job_id = seen.job_id and seen.outcome = 'APPLIED'
     and run.job_id = any (array(select job_id from seen where outcome = 'APPLIED'))
  returning seen.*
), kept as (
  insert into checkpoint (job_id, step_index, fence, attempt, skipped, created_at, step, response)
  select job_id, step_index, fence, attempt, false, at, step, coalesce(response, 'null') from moved where error is null
), asks_no_more as (
  insert into run_outcome (job_id, error) select job_id, error from moved
  on conflict (job_id) do update set error = excluded.error, composed_request = null
), announced as (
  insert into event (job_id, seq, event_id, occurred_at, attempt, type, status, step, error, detail)
  select job_id, next_seq, event_id, at, attempt, case when error is null then 2 else 5 end, status_after, step,
         event_error, detail
    from moved
), queued as (
  insert into relay_queue (shard, seq, job_id) select shard, next_seq, job_id from moved
)
select job_id, outcome, case when outcome = 'APPLIED' then status_after else status end as status, outstanding_step,
       answered as same
  from seen
