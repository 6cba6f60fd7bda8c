-- Every shard: who relays it, how much waits there, counted up to a limit, and since when the oldest of it does.
select shard.shard::integer as shard, shard.lease_owner, shard.lease_until,
       shard.lease_until > coalesce(%(now)s::timestamptz, now()) as live,
       (select count(*)::integer
          from (select from relay_queue where relay_queue.shard = shard.shard limit %(limit)s) counted) as backlog,
       coalesce(
         (select occurred_at from event where event.job_id = oldest.job_id and event.seq = oldest.seq),
         (select received_at from dead_letter where dead_letter.letter_id = oldest.letter_id)) as oldest_at
  from shard
  left join lateral (
    select job_id, seq, letter_id from relay_queue where relay_queue.shard = shard.shard order by id limit 1) oldest on true
 order by shard.shard
