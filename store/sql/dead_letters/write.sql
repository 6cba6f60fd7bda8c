-- Letters that are new: one that is final has its place in the relay's queue, one that is held has not yet. The same record
-- twice is one letter.
with asked as materialized (
  select cluster_id, topic_id, topic, partition, record_offset, record_time, decode(content_hash, 'hex') as content_hash,
         decode(key, 'base64') as key, decode(value, 'base64') as value, headers, code, reason, held_seconds,
         coalesce(%(now)s::timestamptz, now()) as at
    from json_to_recordset(%(letters)s::json) as letter(
           cluster_id text, topic_id text, topic text, partition integer, record_offset bigint, record_time bigint,
           content_hash text, key text, value text, headers jsonb, code text, reason text, held_seconds float8)
   order by cluster_id, topic_id, partition, record_offset, record_time, content_hash
), written as (
  insert into dead_letter (cluster_id, topic_id, topic, partition, record_offset, record_time, content_hash,
                           key, value, headers, state, code, reason, held_until, received_at)
  select cluster_id, topic_id, topic, partition, record_offset, record_time, content_hash, key, value, headers,
         case when held_seconds is null then 'READY' else 'HELD' end, code, reason,
         at + make_interval(secs => held_seconds), at
    from asked
  on conflict on constraint dead_letter_identity do nothing
  returning letter_id, content_hash, state
), queued as (
  insert into relay_queue (shard, kind, letter_id)
  select mod(get_byte(content_hash, 31), (select shards from upkeep where only_row)), 'letter', letter_id
    from written
   where state = 'READY'
   order by letter_id
)
select letter_id from written
