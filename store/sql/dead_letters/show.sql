-- One letter, whole.
select letter_id, cluster_id, topic_id, topic, partition, record_offset, record_time, content_hash, key, value, headers,
       state, code, reason, held_until, received_at, replayed_at
  from dead_letter
 where letter_id = %(letter_id)s
