-- Everything about one run. JSON goes out as text, so that it is read with all the digits of its integers.
select job_id, tenant_id, workflow_name, business_key, labels::text as labels, status, outstanding_step,
       composed_request::text as composed_request, attempt, attempt_step, max_attempts, lost_leases, last_error,
       last_error_at, run_after, next_target, resume_target, due_at, due_move, answer_by, deadline_at,
       lease_owner, lease_until, fence, seq,
       steps_total, items_total, items_done, items_failed, input::text as input, checkpoints::text as checkpoints,
       result::text as result, verdict, error, workflow_definition::text as workflow_definition, definition_hash,
       engine_level, shard, trace_context, record_time, created_at, started_at, updated_at, completed_at
  from workflow_run
 where job_id = %(job_id)s and tenant_id = %(tenant_id)s
