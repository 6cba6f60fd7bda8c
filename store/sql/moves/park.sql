-- Runs that wait, for somebody's answer or for a time: nothing is held for them while they do. `due_move` is what happens
-- unless an answer comes first: at `due_at`, or so many milliseconds from now.
with asked as materialized (
  select m.*, coalesce(%(now)s::timestamptz, now()) as at
    from json_to_recordset(%(moves)s::json) as m(
      job_id uuid, fence bigint, lease_owner text, seq bigint, event_id uuid, attempt integer,
      step text, resume_target text, request jsonb, detail text,
      due_move text, due_at timestamptz, due_in_ms bigint, answer_in_ms bigint)
   order by job_id
), held as materialized (
  select asked.*
    from asked
    cross join lateral (
      select from run
       where run.job_id = asked.job_id and run.fence = asked.fence and run.lease_owner = asked.lease_owner
         and run.status = 'RUNNING'
         for no key update) locked
), parked as (
  update run
     set status = 'WAITING', outstanding_step = held.step, resume_target = held.resume_target, seq = held.seq,
         lost_leases = 0, lease_owner = null, lease_until = null, due_move = held.due_move,
         due_at = coalesce(held.due_at, held.at + held.due_in_ms * interval '1 ms'),
         answer_by = held.at + held.answer_in_ms * interval '1 ms',
         updated_at = greatest(held.at, updated_at + interval '1 us')
    from held
   where run.job_id = held.job_id and run.job_id = any (array(select job_id from held))
  returning held.*, run.shard
), asks as (
  insert into run_outcome (job_id, composed_request) select job_id, request from parked
  on conflict (job_id) do update set composed_request = excluded.composed_request
), announced as (
  insert into event (job_id, seq, event_id, occurred_at, attempt, type, status, step, detail)
  select job_id, seq, event_id, at, attempt, 3, 'WAITING', step, detail from parked
)
insert into relay_queue (shard, seq, job_id) select shard, seq, job_id from parked returning job_id
