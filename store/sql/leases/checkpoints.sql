-- Finished steps of runs just claimed. A statement of its own: the claim's snapshot may be older than its locks.
select job_id, step_index, step, skipped, response
  from checkpoint
 where job_id = any (%(job_ids)s::uuid[])
 order by job_id, step_index
