-- Which of these moves happened? Asked behind lock.sql, which waits for a flush that may still be in flight. The proof
-- of a move is the event with its own id at its own seq; a retry or release announces nothing and is known by the row
-- it left: the same claim, queued, with the failed try counted or no lease lost since. Items are known by the first of
-- them, which no claim writes twice.
select asked.job_id
  from json_to_recordset(%(moves)s::json) as asked(
    job_id uuid, fence bigint, seq bigint, event_id uuid, step text, attempt integer, lost_leases integer,
    first_item integer)
  left join lateral (
    select event.event_id from event where event.job_id = asked.job_id and event.seq = asked.seq offset 0) told on true
  left join lateral (
    select run.status, run.fence, run.attempt, run.attempt_step, run.lost_leases
      from run where run.job_id = asked.job_id offset 0) now on true
  left join lateral (
    select item.fence from item
     where item.job_id = asked.job_id and item.step = asked.step and item.item_index = asked.first_item offset 0) kept
    on true
 where case when asked.event_id is not null then told.event_id = asked.event_id
            when asked.first_item is not null then kept.fence = asked.fence
            else now.status = 'QUEUED' and now.fence = asked.fence
                 and case when asked.attempt is null then now.lost_leases = asked.lost_leases
                          else now.attempt = asked.attempt and now.attempt_step is not distinct from asked.step end
        end
