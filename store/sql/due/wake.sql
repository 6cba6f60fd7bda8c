-- Ends waits whose time has come, in the transaction that locked the runs: their checkpoint is the empty message, and they are
-- queued for what comes next.
with due as materialized (
  select found.*, coalesce(%(now)s::timestamptz, now()) as at, new_event_id() as event_id
    from unnest(%(job_ids)s::uuid[]) as asked(job_id)
    cross join lateral (
      select run.job_id, run.shard, run.fence, run.outstanding_step as step,
             1 + case when run.attempt_step = run.outstanding_step then run.attempt else 0 end as attempt,
             (select max(event.seq) + 1 from event where event.job_id = run.job_id) as seq,
             (select coalesce(max(checkpoint.step_index) + 1, 0) from checkpoint
               where checkpoint.job_id = run.job_id) as step_index
        from run
       where run.job_id = asked.job_id and run.due_move = 'wake'
         and run.due_at <= coalesce(%(now)s::timestamptz, now()) offset 0) found
), moved as (
  update run
     set status = 'QUEUED', seq = due.seq, outstanding_step = null, due_at = null, due_move = null,
         next_target = resume_target, resume_target = null, run_after = due.at, attempt = 0, attempt_step = null,
         updated_at = greatest(due.at, updated_at + interval '1 us')
    from due
   where run.job_id = due.job_id and run.job_id = any (array(select job_id from due))
  returning due.*
), kept as (
  insert into checkpoint (job_id, step_index, fence, attempt, skipped, created_at, step, response)
  select job_id, step_index, fence, attempt, false, at, step, '{}' from moved
), announced as (
  insert into event (job_id, seq, event_id, occurred_at, attempt, type, status, step)
  select job_id, seq, event_id, at, attempt, 2, 'QUEUED', step from moved
)
insert into relay_queue (shard, seq, job_id) select shard, seq, job_id from moved returning job_id
