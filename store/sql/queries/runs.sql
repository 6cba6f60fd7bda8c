-- One page of a tenant's runs, newest first, below the cursor. The page is cut before anything is looked up beside it.
select page.job_id, page.workflow_name, page.status, page.attempt, page.business_key, page.outstanding_step,
       page.run_after, outcome.error, page.created_at, greatest(page.updated_at, latest.occurred_at) as updated_at,
       page.completed_at
  from (
    select job_id, workflow_name, status, attempt, business_key, outstanding_step, run_after, created_at, updated_at,
           completed_at
      from run
     where tenant_id = %(tenant_id)s
       and (created_at, job_id) < (coalesce(%(below_time)s::timestamptz, 'infinity'), %(below_job)s::uuid)
       and (%(status)s::text is null or status = %(status)s)
       and (%(workflow_name)s::text is null or workflow_name = %(workflow_name)s)
     order by created_at desc, job_id desc
    offset %(offset)s limit %(limit)s) page
  left join lateral (select error from run_outcome where run_outcome.job_id = page.job_id offset 0) outcome on true
  left join lateral (
    select occurred_at from event where event.job_id = page.job_id order by seq desc limit 1) latest on true
 order by page.created_at desc, page.job_id desc
