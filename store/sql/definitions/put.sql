-- One row per content: whoever comes second finds what it would have written.
insert into definition (definition_hash, name, document, descriptor_set, engine_level)
values (%(definition_hash)s, %(name)s, %(document)s::jsonb, %(descriptor_set)s, %(engine_level)s)
on conflict (definition_hash) do nothing
