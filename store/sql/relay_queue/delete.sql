-- Acknowledged by the broker: gone from the queue, by explicit ids since ids become visible out of order; a letter is
-- SENT. Only of shards that this relay holds: of others it knows nothing any more.
with owned as materialized (
  select shard from shard where lease_owner = %(owner)s and lease_until > coalesce(%(now)s::timestamptz, now())
), acknowledged as materialized (
  select row.shard, row.id from unnest(%(shards)s::smallint[], %(ids)s::bigint[]) as row(shard, id)
   where row.shard = any (array(select shard from owned))
), gone as (
  delete from relay_queue using acknowledged
   where relay_queue.shard = acknowledged.shard and relay_queue.id = acknowledged.id
  returning relay_queue.letter_id
), sent as (
  update dead_letter set state = 'SENT'
   where letter_id = any (array(select letter_id from gone where letter_id is not null order by letter_id))
)
select count(*)::integer as deleted from gone
