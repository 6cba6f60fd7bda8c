-- One writer of a workflow's versions at a time. First statement of a put, so that the next one sees the newest version.
select pg_advisory_xact_lock(hashtextextended(jsonb_build_array('workflow', %(tenant_id)s::text, %(name)s::text)::text, 0))
