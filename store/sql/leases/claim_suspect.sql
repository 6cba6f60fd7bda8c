-- Takes one run whose last two claims ran out: it may be what kills its workers, so it is never taken among others.
with taken as materialized (
  select pick.*
    from (select pg_advisory_xact_lock_shared(hashtextextended(%(owner)s, 0))) under_way
    cross join lateral (
      select run.job_id, run.next_target as target from run
       where run.status = 'QUEUED' and run.lost_leases >= 2
         and run.run_after <= coalesce(%(now)s::timestamptz, now())
         and run.engine_level <= %(engine_level)s and run.next_target = any (%(targets)s::text[])
       order by run.run_after
       limit 1
         for no key update skip locked) pick
), claimed as (
  update run
     set status = 'RUNNING', fence = fence + 1, next_target = null, resume_target = taken.target,
         lease_owner = %(owner)s, lease_until = coalesce(%(now)s::timestamptz, now()) + %(lease)s::interval,
         started_at = coalesce(started_at, %(now)s::timestamptz, now()),
         updated_at = greatest(coalesce(%(now)s::timestamptz, now()), updated_at + interval '1 us')
    from taken
   where run.job_id = taken.job_id and run.job_id = any (array(select job_id from taken))
  returning run.job_id, run.tenant_id, run.workflow_name, run.fence, run.lease_owner, run.seq, run.attempt,
            run.attempt_step, run.max_attempts, run.lost_leases, run.steps_total, run.definition_hash,
            run.resume_target as target, run.run_after, run.deadline_at, run.business_key
)
select claimed.*, coalesce(%(now)s::timestamptz, now()) as claimed_at, given.input, given.trace_context
  from claimed
  left join lateral (
    select run_input.input::text as input, run_input.trace_context
      from run_input where run_input.job_id = claimed.job_id offset 0) given on true
