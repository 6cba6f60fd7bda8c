-- Plans made while tables are small or never analyzed must not read whole tables later; and a disabled path that has to
-- be taken all the same counts as so dear that it would be compiled. Set for this role in this database, since a
-- connection's own options do not survive a pooler and a database's settings would reach strangers.
do $$
declare
  settings_of text := 'alter role ' || quote_ident(session_user) || ' in database ' || quote_ident(current_database());
begin
  execute settings_of || ' set enable_seqscan = off';
  execute settings_of || ' set enable_hashjoin = off';
  execute settings_of || ' set enable_mergejoin = off';
  execute settings_of || ' set jit = off';
end
$$
