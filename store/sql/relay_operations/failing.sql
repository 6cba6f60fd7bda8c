-- A page of the rows that failed by themselves, on from where the last page ended: few, however much waits.
select queued.shard::integer as shard, queued.id, queued.kind, queued.job_id, queued.seq, queued.letter_id, queued.attempts,
       queued.last_error, queued.next_try_at
  from relay_queue queued
 where queued.attempts > 0 and (queued.shard, queued.id) > (%(after_shard)s::smallint, %(after_id)s::bigint)
 order by queued.shard, queued.id
 limit %(limit)s
