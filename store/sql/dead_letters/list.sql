-- A page of letters, newest first, without their contents. Filters cost what they leave out.
select letter_id, topic, partition, record_offset, record_time, state, code, reason, held_until, received_at, replayed_at,
       coalesce(length(key), 0) + coalesce(length(value), 0) as size
  from dead_letter
 where letter_id < %(before_id)s
   and (%(topic)s::text is null or topic = %(topic)s)
   and (%(code)s::text is null or code = %(code)s)
   and (%(state)s::text is null or state = %(state)s)
 order by letter_id desc
 limit %(limit)s
