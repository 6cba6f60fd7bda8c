"""What every forked worker has imported before it starts; none of it starts a thread."""

import streams.cli.main
import streams.cli.worker
import streams.dev.commit_points
import streams.worker

__all__ = ["streams"]
