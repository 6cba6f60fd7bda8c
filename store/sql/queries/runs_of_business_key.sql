-- One page of the runs of one business key, newest first. They are few: all are found through the index of business keys,
-- then filtered and sorted. Materialized, since the order alone would make the index of all runs look better.
with of_key as materialized (
  select job_id, workflow_name, status, attempt, business_key, outstanding_step, run_after, created_at, updated_at,
           completed_at
    from run
   where tenant_id = %(tenant_id)s and business_key = %(business_key)s
)
select page.job_id, page.workflow_name, page.status, page.attempt, page.business_key, page.outstanding_step,
       page.run_after, outcome.error, page.created_at, greatest(page.updated_at, latest.occurred_at) as updated_at,
       page.completed_at
  from (
    select * from of_key
     where (created_at, job_id) < (coalesce(%(below_time)s::timestamptz, 'infinity'), %(below_job)s::uuid)
       and (%(status)s::text is null or status = %(status)s)
       and (%(workflow_name)s::text is null or workflow_name = %(workflow_name)s)
     order by created_at desc, job_id desc
    offset %(offset)s limit %(limit)s) page
  left join lateral (select error from run_outcome where run_outcome.job_id = page.job_id offset 0) outcome on true
  left join lateral (
    select occurred_at from event where event.job_id = page.job_id order by seq desc limit 1) latest on true
 order by page.created_at desc, page.job_id desc
