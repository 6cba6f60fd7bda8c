-- Locks every run of a flush in job_id order. Comes first in a flush of several statements, which could else wait for
-- another flush in a circle, and before every move that looks outside the row: what the next statement reads is then
-- newer than the lock, which no single statement can promise.
select count(*) as locked
  from (select * from json_to_recordset(%(moves)s::json) as m(job_id uuid) order by job_id) asked
  cross join lateral (select from run where run.job_id = asked.job_id for no key update) held
