-- Queues the events of the locked runs again, by run in order: all from the first that the caller means, since the times of
-- one run's events may stand a little out of order. What of it still waits takes its place among them, with its tries. Records
-- of steps are asked and told once: those that still wait go before their event, and those that are out are not sent again.
with first as materialized (
  select asked.job_id, asked.shard, oldest.seq
    from unnest(%(job_ids)s::uuid[], %(shards)s::smallint[]) as asked(job_id, shard)
    cross join lateral (
      select min(event.seq) as seq
        from event
       where event.job_id = asked.job_id and event.seq >= %(since_seq)s::bigint
         and event.occurred_at >= %(since_time)s::timestamptz) oldest
   where oldest.seq is not null
), wanted as materialized (
  select first.job_id, first.shard, event.seq
    from first
    cross join lateral (select seq from event where event.job_id = first.job_id and event.seq >= first.seq offset 0) event
), waiting as materialized (
  select shard, id, job_id, seq, kind, attempts, next_try_at, last_error
    from relay_queue
   where shard = any (%(shards)s::smallint[]) and kind in ('event', 'record') and job_id = any (array(select job_id from first))
     and seq >= (select first.seq from first where first.job_id = relay_queue.job_id)
   order by shard, id
     for update
), moved as (
  delete from relay_queue using waiting where relay_queue.shard = waiting.shard and relay_queue.id = waiting.id
), queued as (
  insert into relay_queue (shard, job_id, seq, kind, attempts, next_try_at, last_error)
  select wanted.shard, wanted.job_id, wanted.seq, 'event' as kind, coalesce(waiting.attempts, 0), waiting.next_try_at,
         waiting.last_error
    from wanted
    left join waiting on waiting.job_id = wanted.job_id and waiting.seq = wanted.seq and waiting.kind = 'event'
   union all
  select shard, job_id, seq, kind, attempts, next_try_at, last_error from waiting where kind = 'record'
   order by job_id, seq, kind desc
)
select (select count(*) from first)::integer as runs, (select count(*) from wanted)::integer as events
