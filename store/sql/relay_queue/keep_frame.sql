-- Keeps the frame for values of a definition's type on a topic, unless another relay was first.
insert into record_frame (definition_hash, topic, type, frame) values (%(definition_hash)s, %(topic)s, %(type)s, %(frame)s)
on conflict (definition_hash, topic, type) do nothing
