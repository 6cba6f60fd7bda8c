-- The next items of a step that have been tried, by their place. A page at a time, since each may be large.
select item_index, status, attempt, encode(input_hash, 'hex') as input_hash, response, error
  from item
 where job_id = %(job_id)s and step = %(step)s and item_index > %(after)s
 order by item_index
 limit %(limit)s
