"""Every metric, `workflow_runs_*`, on a registry of this process's own."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """The metrics of one process. Two workers in one process have two of these."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("requests_total", "Request records read, by what became of them.", "outcome")
        self.dead_letters = self._counter("dead_letters_total", "Records no run was made of, by reason.", "code")
        self.held_letters = self._counter(
            "held_letters_total", "Records held for their schema, by what became of them at last.", "outcome"
        )
        self.dead_letters_held = self._gauge("dead_letters_held", "Letters held for their schema, up to a limit.")
        self.dead_letters_ready = self._gauge("dead_letters_ready", "Letters waiting for the relay, up to a limit.")
        self.intake_batch_seconds = self._histogram("intake_batch_seconds", "One intake transaction, retries included.")
        self.intake_records_lost = self._counter(
            "intake_records_lost_total", "Records that retention removed before they were read.", "topic"
        )
        self.intake_lag = self._partition_gauge("intake_lag", "Offsets that are not read yet.")
        self.intake_retention_left = self._partition_gauge(
            "intake_retention_left_seconds", "How long retention keeps the oldest record that is not read, at least."
        )
        self.intake_refusals = self._counter(
            "intake_refusals_total", "Times a constraint that is not known here stood against a record.", "constraint"
        )
        self.intake_held_back = self._gauge(
            "intake_held_back", "1 while intake reads nothing since too much is queued."
        )
        self.intake_held_partitions = self._gauge(
            "intake_held_partitions", "Partitions that stand still while others are read, as /readyz says."
        )
        self.intake_rebuilds = self._counter("intake_rebuilds_total", "Times the intake app was rebuilt after a crash.")
        self.claims = self._counter("claims_total", "Runs claimed.")
        self.held_runs = self._gauge("held_runs", "Runs this process holds now.")
        self.moves = self._counter("moves_total", "Moves of held runs, by what became of them.", "move", "result")
        self.steps = self._counter("steps_total", "Calls of steps, by gRPC code or kind of failure.", "code")
        self.step_seconds = self._histogram("step_seconds", "One call of a step.")
        self.handlers_left_behind = self._gauge(
            "handlers_left_behind", "Calls of handlers that were given up and are still at work."
        )
        self.handler_loop_lag = self._gauge(
            "handler_loop_lag_seconds", "How long async handlers have been held up by one of them."
        )
        self.leases_lost = self._counter("leases_lost_total", "Runs this process held and lost to another claim.")
        self.expired = self._counter("expired_leases_total", "Leases that housekeeping found expired.", "outcome")
        self.due = self._counter(
            "due_runs_total", "Runs whose time had come, by what happened: wake, overdue, remind.", "move"
        )
        self.relay_published = self._counter("relay_published_total", "Records published and acknowledged.", "kind")
        self.relay_failures = self._counter("relay_failures_total", "Records that failed by themselves.", "kind")
        self.relay_backlog = self._gauge("relay_backlog", "Rows waiting in the relay queue, when last counted.")
        self.relay_blocked = self._gauge("relay_blocked_keys", "Keys blocked after ten failures of one record.")
        self.relay_in_flight = self._gauge("relay_in_flight", "Records handed to Kafka and not acknowledged yet.")
        self.relay_shards = self._gauge("relay_shards", "Relay shards this process holds.")
        self.queued_runs = self._gauge("queued_runs", "Due queued runs, counted up to a limit.")
        self.runs_pruned = self._counter("runs_pruned_total", "Settled runs deleted after PRUNE_AFTER_SECONDS.")
        self.runs_forgotten = self._counter("runs_forgotten_total", "Ids of pruned runs that are free again.")
        self.history_changes = self._counter(
            "history_changes_total", "Times the database was found put back to an earlier state, or failed over."
        )
        self.service_ready = Gauge(
            "workflow_runs_service_ready",
            "1 while a service can work, as /readyz says.",
            ("service",),
            registry=self.registry,
        )
        self.verbs = self._counter("verbs_total", "Calls of the verbs over HTTP.", "verb", "status")

    def render(self) -> bytes:
        """The metrics in Prometheus's text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"workflow_runs_{name}", meaning, labels, registry=self.registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"workflow_runs_{name}", meaning, registry=self.registry)

    def _partition_gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"workflow_runs_{name}", meaning, ("topic", "partition"), registry=self.registry)

    def _histogram(self, name: str, meaning: str) -> Histogram:
        buckets = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900)
        return Histogram(f"workflow_runs_{name}", meaning, buckets=buckets, registry=self.registry)
