-- Writes down that events are sent again, from when on, by whom and why.
insert into audit (tenant_id, actor, verb, job_id, reason, detail)
values (coalesce((select tenant_id from run where job_id = %(job_id)s::uuid), 'default'), %(actor)s, 'relay republish',
        %(job_id)s::uuid, %(reason)s, jsonb_build_object('sinceTime', %(since_time)s::timestamptz, 'sinceSeq', %(since_seq)s::bigint))
