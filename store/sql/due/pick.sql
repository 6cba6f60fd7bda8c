-- Locks parked runs whose time has come, longest first, and says what is to happen. Who is just answering one keeps it.
select run.job_id, case when run.answer_by <= coalesce(%(now)s::timestamptz, now()) then 'overdue' else run.due_move end as move
  from run
 where run.due_at <= coalesce(%(now)s::timestamptz, now())
 order by run.due_at
 limit %(limit)s
   for no key update skip locked
