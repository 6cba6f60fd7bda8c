-- One migration more, in its own transaction.
insert into workflow_runs.migration (version, name, checksum) values (%(version)s, %(name)s, %(checksum)s)
