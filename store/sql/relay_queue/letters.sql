-- The oldest unpublished dead letters of each shard, leaving out those that the relay skips. They have an index of their
-- own, so that a look costs nothing however many events wait.
select queued.shard::integer as shard, queued.id, queued.attempts,
       extract(epoch from queued.next_try_at - now())::double precision as wait_seconds, letter.letter_id, letter.cluster_id, letter.topic_id, letter.topic, letter.partition, letter.record_offset, letter.record_time,
       letter.content_hash, letter.key, letter.value, letter.headers, letter.code, letter.reason, letter.received_at,
       letter.skip_reason
  from unnest(%(shards)s::smallint[], %(low)s::bigint[]) as wanted(shard, low)
  cross join lateral (
    select shard, id, letter_id, attempts, next_try_at
      from relay_queue
     where relay_queue.shard = wanted.shard and id >= wanted.low
       and kind = 'letter' and letter_id <> all (%(skip)s::bigint[])
     order by shard, id limit %(limit)s) queued
  cross join lateral (select * from dead_letter where dead_letter.letter_id = queued.letter_id offset 0) letter
 order by queued.shard, queued.id
