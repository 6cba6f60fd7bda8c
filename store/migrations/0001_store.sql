-- Runs, their log and everything that stands beside them. Applied by `workflow-runs migrate` inside the schema
-- workflow_runs, in one transaction.
--
-- No foreign keys between hot tables: each takes a key-share lock per row, and the rows of a run only go together.

-- Ids for events that are born in SQL: time first, so that they sort by age (RFC 9562, version 7).
create function new_event_id() returns uuid
language sql volatile parallel safe
return encode(
  set_bit(set_bit(
    overlay(uuid_send(gen_random_uuid())
            placing substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
    52, 1), 53, 1),
  'hex')::uuid;

-- The fixed facts of this database; one row.
create table upkeep (
  only_row          boolean primary key default true,
  shards            smallint not null default 16,       -- jobs hash to this many relay shards, for ever
  forgotten_before  timestamptz,                        -- newest settling or record of any run pruned and forgotten
  timeline          bigint,
  schema_level      smallint not null default 1,
  constraint upkeep_has_one_row check (only_row),
  constraint upkeep_shards_fit check (shards between 1 and 256)
);
insert into upkeep default values;

-- One row per distinct definition, with the schema it was checked against: a run's snapshot. Never updated.
create table definition (
  definition_hash  bytea primary key,
  name             text not null,
  document         jsonb not null,
  descriptor_set   bytea not null,
  engine_level     smallint not null,
  created_at       timestamptz not null default now()
);

-- Stored workflows by name; the greatest version is the one that new requests run.
create table workflow (
  tenant_id        text not null,
  name             text not null,
  version          integer not null,
  definition_hash  bytea not null,
  created_at       timestamptz not null default now(),
  created_by       text not null,
  constraint workflow_pkey primary key (tenant_id, name, version)
);

-- The hot row. Columns that moves change come first: an update logs only the bytes between the common prefix and the
-- common suffix of the two versions.
create table run (
  job_id             uuid not null,
  fence              bigint not null default 0,         -- grows with every claim and cancel; every holder's write names it
  seq                bigint not null default 1,         -- last event's number; while RUNNING the log decides
  attempt            integer not null default 0,        -- failed tries of attempt_step
  lost_leases        smallint not null default 0,       -- claims that ended in expiry, one after the other
  items_total        integer not null default 0,
  items_done         integer not null default 0,
  items_failed       integer not null default 0,
  run_after          timestamptz not null default now(),
  due_at             timestamptz,                       -- when a parked run moves on by itself, see due_move
  answer_by          timestamptz,                       -- until when the outstanding step must be answered
  updated_at         timestamptz not null default now(),
  lease_until        timestamptz,
  started_at         timestamptz,
  completed_at       timestamptz,
  status             text not null,
  lease_owner        text,
  due_move           text,                              -- what happens at due_at unless an answer comes first
  attempt_step       text,
  next_target        text,                              -- what the next call goes to; set exactly while QUEUED
  resume_target      text,                              -- where it is queued next: by an answer while WAITING, by a lost
                                                        -- lease while RUNNING (then what it was claimed for)
  outstanding_step   text,
  shard              smallint not null,
  engine_level       smallint not null,
  max_attempts       integer not null,
  steps_total        integer not null,
  definition_hash    bytea,                             -- null: born FAILED, no definition known
  created_at         timestamptz not null default now(),
  deadline_at        timestamptz,
  fingerprint        bytea not null,
  tenant_id          text not null,
  workflow_name      text not null,
  business_key       text,
  single_flight_key  text,
  constraint run_pkey primary key (job_id),
  constraint run_status_known
    check (status in ('QUEUED', 'RUNNING', 'WAITING', 'COMPLETED', 'FAILED', 'DEAD', 'CANCELLED')),
  constraint run_leased_iff_running
    check ((status = 'RUNNING') = (lease_owner is not null) and (status = 'RUNNING') = (lease_until is not null)),
  constraint run_targeted_iff_queued check ((status = 'QUEUED') = (next_target is not null)),
  constraint run_outstanding_iff_waiting check ((status = 'WAITING') = (outstanding_step is not null)),
  constraint run_due_by_a_known_move
    check ((due_at is null) = (due_move is null) and (due_at is null or status = 'WAITING')
           and (due_move is null or due_move in ('wake', 'remind', 'overdue'))),
  constraint run_answered_by_iff_waiting check (answer_by is null or status = 'WAITING'),
  constraint run_resumable_iff_away check ((status in ('RUNNING', 'WAITING')) = (resume_target is not null)),
  constraint run_completed_iff_settled
    check ((status in ('COMPLETED', 'FAILED', 'DEAD', 'CANCELLED')) = (completed_at is not null)),
  constraint run_counters_not_negative
    check (fence >= 0 and seq >= 1 and attempt >= 0 and lost_leases >= 0 and steps_total >= 0 and max_attempts >= 1)
);

create index run_claim on run (next_target, run_after, job_id) where next_target is not null and lost_leases < 2;
create index run_suspects on run (run_after) where status = 'QUEUED' and lost_leases >= 2;
create index run_due on run (due_at) where due_at is not null;
-- Runs that nobody works on: a holder keeps its run's deadline itself.
create index run_deadline on run (deadline_at)
  where deadline_at is not null and lease_until is null and completed_at is null;
-- Not by status: a guard that names RUNNING would then seem to be answered best by reading all of it.
create index run_lease on run (lease_until) where lease_until is not null;
create index run_settled on run (completed_at) where completed_at is not null;
create index run_list on run (tenant_id, created_at desc, job_id desc);
create index run_business_key on run (tenant_id, business_key) where business_key is not null;
create unique index run_single_flight on run (tenant_id, single_flight_key)
  where single_flight_key is not null and status in ('QUEUED', 'RUNNING', 'WAITING');

create table run_input (
  job_id         uuid primary key,
  input          jsonb not null,
  labels         jsonb,
  trace_context  text,
  record_time    timestamptz
);

create table run_outcome (
  job_id            uuid primary key,
  result            jsonb,
  verdict           text,
  error             text,
  last_error        text,                               -- of the latest failed try, also while backing off
  last_error_at     timestamptz,
  composed_request  jsonb                               -- what the outstanding step asks
);

create table checkpoint (
  job_id      uuid not null,
  step_index  integer not null,
  fence       bigint not null,                          -- the claim it was written under
  attempt     integer not null,
  skipped     boolean not null,
  created_at  timestamptz not null default now(),
  step        text not null,
  response    jsonb,
  constraint checkpoint_pkey primary key (job_id, step_index),
  constraint checkpoint_response_iff_executed check (skipped = (response is null))
);

create table item (
  job_id      uuid not null,
  step        text not null,
  item_index  integer not null,
  status      text not null,
  fence       bigint not null,
  attempt     integer not null,
  updated_at  timestamptz not null default now(),
  input       jsonb,
  response    jsonb,
  error       text,
  input_hash  bytea not null,                           -- SHA-256 of what it is called with, the same on every try
  constraint item_pkey primary key (job_id, step, item_index),
  constraint item_status_known check (status in ('QUEUED', 'RUNNING', 'WAITING', 'COMPLETED', 'FAILED')),
  constraint item_response_iff_completed check ((status = 'COMPLETED') = (response is not null))
);

-- The log: what a consumer is told, in typed columns. Append only; the relay renders the bytes.
create table event (
  job_id            uuid not null,
  seq               bigint not null,
  event_id          uuid not null,                      -- made by the mover, so that a repeat finds its own
  occurred_at       timestamptz not null default now(),
  attempt           integer not null,                   -- number of the try it belongs to, 0 before any
  type              smallint not null,
  contract_version  smallint not null default 1,
  format            smallint not null default 1,        -- 1 Protobuf, 2 Avro, 3 JSON Schema
  status            text not null,                      -- after the move
  step              text,
  verdict           text,
  error             text,                               -- 4,000 code points at most; the run has all of it
  detail            text,                               -- JSON text: kept byte for byte, so that a redelivery is identical
  skip_reason       text,                               -- set: told in its reduced form, since an operator gave it up
  constraint event_pkey primary key (job_id, seq),
  constraint event_type_known check (type between 1 and 8),
  constraint event_format_known check (format between 1 and 3)
);

-- What is still to be published, deleted after the broker's acknowledgement. The id is given out under the run's lock,
-- so that ids of one job ascend with its seq.
create table relay_queue (
  shard        smallint not null,
  id           bigint generated always as identity,
  seq          bigint,
  job_id       uuid,
  letter_id    bigint,
  attempts     integer not null default 0,
  kind         text not null default 'event',
  next_try_at  timestamptz,
  last_error   text,
  constraint relay_queue_pkey primary key (shard, id),
  constraint relay_queue_kind_known check (kind in ('event', 'state', 'record', 'letter')),
  constraint relay_queue_names_its_source
    check ((kind = 'letter') = (letter_id is not null) and (kind = 'letter') = (job_id is null))
);
-- Dead letters: few, however many events wait.
create index relay_queue_letters on relay_queue (shard, id) where kind = 'letter';
-- What failed by itself: few, however much waits.
create index relay_queue_failing on relay_queue (shard, id) where attempts > 0;

-- What `publish` and `ask` steps send, value and headers byte for byte; the value without the frame of its schema.
create table record (
  job_id       uuid not null,
  seq          bigint not null,                         -- of the event of the same commit, which follows it to Kafka
  step_index   integer not null,
  topic        text not null,
  type         text not null,                           -- full name of the value's message type
  key          bytea not null,
  value        bytea not null,
  headers      jsonb not null,                          -- array of [name, text], in their order
  skip_reason  text,                                    -- set: never published, since an operator gave it up
  constraint record_pkey primary key (job_id, seq)
);

-- The frame that values of one definition's type get on one topic: found at the schema registry once, and kept, so that a
-- record is sent with the same bytes each time.
create table record_frame (
  definition_hash  bytea not null,
  topic            text not null,
  type             text not null,
  frame            bytea not null,
  created_at       timestamptz not null default now(),
  constraint record_frame_pkey primary key (definition_hash, topic, type)
);

-- Records of a source topic that no run could be made of, byte for byte.
create table dead_letter (
  letter_id      bigint generated always as identity primary key,
  cluster_id     text not null,
  topic_id       text not null,
  topic          text not null,
  partition      integer not null,
  record_offset  bigint not null,
  record_time    bigint not null,                       -- as on the record: milliseconds since 1970
  content_hash   bytea not null,                        -- SHA-256 of key and value
  key            bytea,
  value          bytea,
  headers        jsonb not null,                        -- array of [name, base64 or null], in their order; a name that
                                                        -- jsonb cannot hold is null and stands third, as base64
  state          text not null,
  code           text not null,
  reason         text not null,
  held_until     timestamptz,
  received_at    timestamptz not null default now(),
  replayed_at    timestamptz,                           -- when it was last put back on its topic
  skip_reason    text,                                  -- set: published in its reduced form, since an operator gave it up
  constraint dead_letter_identity unique (cluster_id, topic_id, partition, record_offset, record_time, content_hash),
  constraint dead_letter_state_known check (state in ('HELD', 'READY', 'SENT')),
  constraint dead_letter_held_until_iff_held check ((state = 'HELD') = (held_until is not null))
);
-- What is not on its topic yet: few, however many letters there were.
create index dead_letter_open on dead_letter (state, topic, held_until, letter_id) where state <> 'SENT';

-- How far each partition is read. Moves by compare-and-set, in the transaction of the rows read.
create table intake_position (
  group_id      text not null,
  topic         text not null,
  partition     integer not null,
  topic_id      text not null,
  next_offset   bigint not null,
  floor_offset  bigint not null default 0,              -- reading never starts below it: set by `intake skip`
  updated_at    timestamptz not null default now(),
  constraint intake_position_pkey primary key (group_id, topic, partition)
);

-- Answers that came by topic before their step asked.
create table early_answer (
  tenant_id      text not null,
  job_id         uuid not null,
  step           text not null,
  response       jsonb not null,
  cluster_id     text not null,
  topic_id       text not null,
  partition      integer not null,
  record_offset  bigint not null,
  record_time    bigint not null,
  content_hash   bytea not null,
  key            bytea,
  value          bytea,
  headers        jsonb not null,
  received_at    timestamptz not null default now(),
  constraint early_answer_pkey primary key (tenant_id, job_id, step)
);

-- What is remembered of a pruned run, so that its id stays taken.
create table pruned_run (
  job_id       uuid primary key,
  tenant_id    text not null,
  fingerprint  bytea not null,
  status       text not null,
  record_time  timestamptz,
  settled_at   timestamptz not null,
  pruned_at    timestamptz not null default now()
);
create index pruned_run_forget on pruned_run (greatest(settled_at, record_time));

create table idempotency_key (
  tenant_id    text not null,
  key          text not null,
  job_id       uuid not null,
  fingerprint  bytea not null,
  created_at   timestamptz not null default now(),
  constraint idempotency_key_pkey primary key (tenant_id, key)
);
create index idempotency_key_job on idempotency_key (job_id);

-- Who relays which shard.
create table shard (
  shard        smallint primary key,
  lease_owner  text,
  lease_until  timestamptz,
  constraint shard_leased_together check ((lease_owner is null) = (lease_until is null))
);
insert into shard (shard) select generate_series(0, 15);

-- Which relays are there, also those that hold no shard yet: among them the shards are shared out.
create table relay_worker (
  owner       text primary key,
  live_until  timestamptz not null
);

-- What operators did, and why.
create table audit (
  id         bigint generated always as identity primary key,
  at         timestamptz not null default now(),
  tenant_id  text not null,
  actor      text not null,
  verb       text not null,
  job_id     uuid,
  reason     text,
  detail     jsonb
);

-- Everything about a run in one row.
create view workflow_run as
select run.job_id, run.tenant_id, run.workflow_name, run.business_key, run_input.labels, run.status,
       run.outstanding_step, run_outcome.composed_request, run.attempt, run.attempt_step, run.max_attempts,
       run.lost_leases, run_outcome.last_error, run_outcome.last_error_at, run.run_after, run.next_target, run.resume_target,
       run.due_at, run.due_move, run.answer_by, run.deadline_at, run.lease_owner, run.lease_until, run.fence,
       greatest(run.seq, (select max(event.seq) from event where event.job_id = run.job_id)) as seq,
       run.steps_total, run.items_total, run.items_done, run.items_failed,
       run_input.input, steps.checkpoints, run_outcome.result, run_outcome.verdict, run_outcome.error,
       definition.document as workflow_definition, encode(run.definition_hash, 'hex') as definition_hash, run.engine_level,
       run.shard, run_input.trace_context, run_input.record_time, run.created_at, run.started_at,
       greatest(run.updated_at, steps.last_at) as updated_at, run.completed_at
  from run
  left join definition on definition.definition_hash = run.definition_hash
  left join run_input on run_input.job_id = run.job_id
  left join run_outcome on run_outcome.job_id = run.job_id
  cross join lateral (
    select coalesce(
             jsonb_agg(jsonb_build_object('step_index', step_index, 'step', step, 'skipped', skipped, 'attempt', attempt,
                                          'fence', fence, 'created_at', checkpoint.created_at, 'response', response)
                       order by step_index),
             '[]') as checkpoints,
           max(checkpoint.created_at) as last_at
      from checkpoint
     where checkpoint.job_id = run.job_id) steps;

-- Every event with where it stands on its way to the topic.
create view workflow_run_events_outbox as
select event.event_id, event.type as event_type, event.job_id, event.job_id::text as kafka_key, event.seq,
       case when queued.id is null then 'PUBLISHED' when queued.attempts >= 10 then 'FAILED' else 'PENDING' end as status,
       coalesce(queued.attempts, 0) as attempts, queued.last_error, queued.next_try_at,
       run.tenant_id, run.workflow_name, run.business_key, event.step, event.attempt, event.status as run_status,
       event.verdict, event.error, event.detail, event.occurred_at as created_at, event.skip_reason
  from event
  join run on run.job_id = event.job_id
  left join relay_queue queued
    on queued.shard = run.shard and queued.kind = 'event' and queued.job_id = event.job_id and queued.seq = event.seq;
