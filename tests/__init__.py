"""The tests mirror the packages; what several of them share is in `tests/fixtures`."""
