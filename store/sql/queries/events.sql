-- The log of one run; of another tenant's there is none.
select event.seq, event.event_id, event.type, event.step, event.attempt, event.status, event.verdict, event.error,
       event.detail, event.occurred_at
  from event
 where event.job_id = %(job_id)s
   and (select tenant_id from run where run.job_id = %(job_id)s) = %(tenant_id)s
 order by event.seq
