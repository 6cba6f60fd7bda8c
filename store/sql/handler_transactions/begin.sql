-- Begins the transaction of a handler, behind BEGIN: its statements end with the time of the call, and its id tells later
-- whether the handler has ended it by itself.
select txid_current()::text as xid, set_config('statement_timeout', %(milliseconds)s::text, true)
