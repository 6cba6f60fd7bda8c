-- Ends runs whose time is up, in the transaction that locked them: parked ones that were not answered in time, and those past
-- their own deadline that nobody works on. The error names what has passed.
with late as materialized (
  select found.*, coalesce(%(now)s::timestamptz, now()) as at, new_event_id() as event_id,
         'DEADLINE: ' || case when found.past_deadline then 'the run was not done' else found.step || ' was not answered' end
           || ' by ' || to_char(case when found.past_deadline then found.deadline_at else found.answer_by end at time zone 'UTC',
                                'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
           || case when found.past_deadline then ' (runDeadlineMs)' else ' (answerWithinMs)' end as error
    from unnest(%(job_ids)s::uuid[]) as asked(job_id)
    cross join lateral (
      select run.job_id, run.shard, run.deadline_at, run.answer_by, coalesce(run.outstanding_step, run.attempt_step) as step,
             case when run.outstanding_step is null then run.attempt
                  when run.attempt_step = run.outstanding_step then run.attempt + 1
                  else 1 end as attempt,
             coalesce(run.deadline_at <= coalesce(%(now)s::timestamptz, now()), false) as past_deadline,
             (select max(event.seq) + 1 from event where event.job_id = run.job_id) as seq
        from run
       where run.job_id = asked.job_id and run.status in ('QUEUED', 'WAITING')
         and least(run.deadline_at, run.answer_by) <= coalesce(%(now)s::timestamptz, now()) offset 0) found
), moved as (
  update run
     set status = 'FAILED', seq = late.seq, next_target = null, resume_target = null, outstanding_step = null, due_at = null,
         due_move = null, answer_by = null, completed_at = late.at,
         updated_at = greatest(late.at, updated_at + interval '1 us')
    from late
   where run.job_id = late.job_id and run.job_id = any (array(select job_id from late))
  returning late.*
), ended as (
  insert into run_outcome (job_id, error) select job_id, error from moved
  on conflict (job_id) do update set error = excluded.error, composed_request = null
), announced as (
  insert into event (job_id, seq, event_id, occurred_at, attempt, type, status, step, error)
  select job_id, seq, event_id, at, attempt, 5, 'FAILED', step, error from moved
), queued as (
  insert into relay_queue (shard, seq, job_id) select shard, seq, job_id from moved
)
select job_id, error from moved
