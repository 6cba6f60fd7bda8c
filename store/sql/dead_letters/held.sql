-- A page of the held letters of a topic, whole, those whose time ends first before the others.
select letter_id, cluster_id, topic_id, topic, partition, record_offset, record_time, content_hash, key, value, headers,
       code, reason, held_until, extract(epoch from held_until - coalesce(%(now)s::timestamptz, now()))::float8 as seconds_left
  from dead_letter
 where state = 'HELD' and topic = %(topic)s
   and (held_until, letter_id) > (%(after_time)s::timestamptz, %(after_id)s::bigint)
 order by held_until, letter_id
 limit %(limit)s
