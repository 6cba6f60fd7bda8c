-- The migrations applied so far; the checksum tells that a file was changed afterwards.
create table workflow_runs.migration (
  version     integer primary key,
  name        text not null,
  checksum    text not null,
  applied_at  timestamptz not null default now()
)
