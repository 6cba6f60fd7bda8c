"""Builds what a command needs from the settings: the one place that knows every part below Faust, and no Faust.

Each module builds one part, so that a quick command imports no more than it needs.
"""
