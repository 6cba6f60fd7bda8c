-- The next page of all runs, and which of them have an event from that time on. By key, since the log has no index by time:
-- it would cost every event of every run what this costs once in a while.
select run.job_id,
       (select 1 from event
         where event.job_id = run.job_id and event.occurred_at >= %(since_time)s::timestamptz
         limit 1) is not null as wanted
  from (select job_id from run where job_id > %(after)s::uuid order by job_id limit %(limit)s) run
 order by run.job_id
