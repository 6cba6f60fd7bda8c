-- The items of a run that failed, for good or so far, by step and place. Those that are done tell no more than their number.
select item.step, item.item_index, item.status, item.attempt, item.error, item.updated_at
  from item
 where item.job_id = %(job_id)s and item.status <> 'COMPLETED'
 order by item.step, item.item_index
 limit %(limit)s
