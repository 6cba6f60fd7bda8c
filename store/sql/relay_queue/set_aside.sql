-- A row that failed by itself: it is tried again later, and the reason is kept for whoever looks.
update relay_queue
   set attempts = attempts + 1, last_error = %(error)s,
       next_try_at = coalesce(%(now)s::timestamptz, now()) + %(delay_seconds)s * interval '1 second'
 where shard = %(shard)s and id = %(id)s
returning attempts
