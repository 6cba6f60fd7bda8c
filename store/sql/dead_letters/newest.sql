-- The newest letter's id: what comes later is none of a replay's that has begun.
select coalesce((select letter_id from dead_letter order by letter_id desc limit 1), 0) as letter_id
