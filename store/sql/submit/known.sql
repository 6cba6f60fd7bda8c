-- Second look of a submit: what stands under these ids, and is it the same request? Another tenant's is not. Begins after
-- the insert, since a prune can commit while the insert waits; of runs that are new, only what was pruned is asked. An
-- unknown id may be too old to know: one snapshot has either the memory of a run or the time up to which all is forgotten.
select asked.ordinal, run.status as run_status, run.same as run_same,
       pruned.status as pruned_status, pruned.same as pruned_same
  from (select row.*, record_time <= (select forgotten_before from upkeep where only_row) as is_old
          from json_to_recordset(%(asked)s::json) as row(
                 ordinal integer, job_id uuid, tenant_id text, fingerprint text, is_new boolean, record_time timestamptz)
       ) asked
  left join lateral (
    select status, fingerprint = decode(asked.fingerprint, 'hex') and tenant_id = asked.tenant_id as same
      from run
     where run.job_id = asked.job_id and not asked.is_new offset 0) run on true
  left join lateral (
    select status, fingerprint = decode(asked.fingerprint, 'hex') and tenant_id = asked.tenant_id as same
      from pruned_run
     where pruned_run.job_id = asked.job_id offset 0) pruned on true
 where run.status is not null or pruned.status is not null or asked.is_old
