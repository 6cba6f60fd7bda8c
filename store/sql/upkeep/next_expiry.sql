-- When does the next lease run out? One index look-up; no row while nothing runs.
select extract(epoch from run.lease_until - coalesce(%(now)s::timestamptz, now()))::double precision as seconds
  from run
 where run.status = 'RUNNING' and run.lease_until > '-infinity'
 order by run.lease_until
 limit 1
