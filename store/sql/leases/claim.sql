-- Takes up to `free` due runs per target, longest due first, from the target's low-water mark on; what others take is
-- passed over. The shared lock tells hold_claims.sql that a claim is under way. While it is RUNNING, a run keeps the
-- target it was taken for, so that it can be queued again by someone who knows no more than its row.
with served as materialized (
  select * from json_to_recordset(%(targets)s::json) as s(target text, free integer, low timestamptz)
   cross join (select pg_advisory_xact_lock_shared(hashtextextended(%(owner)s, 0))) under_way
), taken as materialized (
  select served.target, pick.job_id
    from served
    cross join lateral (
      select run.job_id from run
       where run.next_target = served.target and run.lost_leases < 2
         and run.run_after >= served.low and run.run_after <= coalesce(%(now)s::timestamptz, now())
         and run.engine_level <= %(engine_level)s
       order by run.run_after, run.job_id
       limit served.free
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
 order by claimed.run_after, claimed.job_id
