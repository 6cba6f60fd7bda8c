-- What this connection is promised by the server, and whether the planner settings reached it.
select current_setting('enable_seqscan') = 'off' and current_setting('enable_hashjoin') = 'off'
         and current_setting('enable_mergejoin') = 'off' and current_setting('jit') = 'off' as has_planner_settings,
       current_setting('synchronous_commit') as synchronous_commit,
       current_setting('synchronous_standby_names') as synchronous_standby_names
