-- Items of a step that fans out: all that a run finished meanwhile, in one move. Nothing is announced. The run is locked
-- and written, since it counts its items; an item that was settled before is neither changed nor counted again.
with asked as materialized (
  select m.*, coalesce(%(now)s::timestamptz, now()) as at
    from json_to_recordset(%(moves)s::json) as m(
      job_id uuid, fence bigint, lease_owner text, step text, new_items integer, items json)
   order by job_id
), held as materialized (
  select asked.*
    from asked
    cross join lateral (
      select from run
       where run.job_id = asked.job_id and run.fence = asked.fence and run.lease_owner = asked.lease_owner
         and run.status = 'RUNNING'
         for no key update) locked
), kept as materialized (
  insert into item (job_id, step, item_index, fence, attempt, updated_at, status, input_hash, input, response, error)
  select held.job_id, held.step, given.item_index, held.fence, given.attempt, held.at, given.status,
         decode(given.input_hash, 'hex'), given.input,
         case when given.status = 'COMPLETED' then coalesce(given.response, 'null') end, given.error
    from held
    cross join lateral json_to_recordset(held.items) as given(
      item_index integer, status text, attempt integer, input_hash text, input jsonb, response jsonb, error text)
  on conflict (job_id, step, item_index) do update
     set fence = excluded.fence, attempt = excluded.attempt, updated_at = excluded.updated_at,
         status = excluded.status, input = excluded.input, response = excluded.response, error = excluded.error
   where item.status not in ('COMPLETED', 'FAILED')
  returning job_id, status
)
update run
   set items_total = items_total + held.new_items,
       items_done = items_done + (
         select count(*) from kept where kept.job_id = held.job_id and kept.status = 'COMPLETED'),
       items_failed = items_failed + (
         select count(*) from kept where kept.job_id = held.job_id and kept.status = 'FAILED'),
       lost_leases = 0, updated_at = greatest(held.at, updated_at + interval '1 us')
  from held
 where run.job_id = held.job_id and run.job_id = any (array(select job_id from held))
returning run.job_id
