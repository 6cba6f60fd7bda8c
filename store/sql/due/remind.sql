-- Tells once more that parked runs wait, in the transaction that locked them. From now on only the time to answer counts.
with due as materialized (
  select found.*, coalesce(%(now)s::timestamptz, now()) as at, new_event_id() as event_id
    from unnest(%(job_ids)s::uuid[]) as asked(job_id)
    cross join lateral (
      select run.job_id, run.shard, run.outstanding_step as step,
             1 + case when run.attempt_step = run.outstanding_step then run.attempt else 0 end as attempt,
             (select max(event.seq) + 1 from event where event.job_id = run.job_id) as seq
        from run
       where run.job_id = asked.job_id and run.due_move = 'remind'
         and run.due_at <= coalesce(%(now)s::timestamptz, now()) offset 0) found
), moved as (
  update run
     set seq = due.seq, due_at = answer_by, due_move = case when answer_by is not null then 'overdue' end,
         updated_at = greatest(due.at, updated_at + interval '1 us')
    from due
   where run.job_id = due.job_id and run.job_id = any (array(select job_id from due))
  returning due.*
), announced as (
  insert into event (job_id, seq, event_id, occurred_at, attempt, type, status, step, detail)
  select job_id, seq, event_id, at, attempt, 3, 'WAITING', step, '{"reminder":true}' from moved
)
insert into relay_queue (shard, seq, job_id) select shard, seq, job_id from moved returning job_id
