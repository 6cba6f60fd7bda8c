-- The events of one run with where each stands on its way. The queue is read once, whatever waits in the run's shard.
with found as materialized (
  select job_id, shard from run where job_id = %(job_id)s::uuid
), queued as materialized (
  select seq, attempts, last_error, next_try_at
    from relay_queue
   where shard = (select shard from found) and kind = 'event' and job_id = (select job_id from found)
)
select event.seq, event.event_id, event.type, event.step, event.occurred_at, event.skip_reason,
       queued.seq is not null as queued, coalesce(queued.attempts, 0) as attempts, queued.last_error, queued.next_try_at
  from found
  cross join lateral (
    select * from event
     where event.job_id = found.job_id and event.seq > %(after_seq)s::bigint
     order by event.seq limit %(limit)s) event
  left join queued on queued.seq = event.seq
 order by event.seq
