-- The items of a run whose last try failed, for good or so far, by step and place. Those that are done tell no more than
-- their number; an error is cut to what an event would carry.
select item.step, item.item_index, item.status, item.attempt, left(item.error, 4000) as error, item.updated_at
  from item
 where item.job_id = %(job_id)s and item.status <> 'COMPLETED'
 order by item.step, item.item_index
 limit %(limit)s
