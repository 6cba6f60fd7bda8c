"""What every server of the development stack can do."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Server(ABC):
    """A server that is started, stopped, started again, and gone after `close`; a context manager does both ends."""

    @abstractmethod
    def start(self) -> None:
        """Start it and wait until it serves. Raises StartFailed, and then nothing of it is left running."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it in order. To stop what does not run is harmless."""

    @abstractmethod
    def kill(self) -> None:
        """End it at once, as a crash would. To kill what does not run is harmless."""

    @abstractmethod
    def close(self) -> None:
        """End it and remove what it kept. To close twice is harmless."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
