-- A page of letters that a replay by filter takes, oldest first: final, never replayed, and there before it began.
select letter_id
  from dead_letter
 where letter_id > %(after_id)s and letter_id <= %(upto_id)s and state <> 'HELD' and replayed_at is null
   and (%(topic)s::text is null or topic = %(topic)s)
   and (%(code)s::text is null or code = %(code)s)
 order by letter_id
 limit %(limit)s
