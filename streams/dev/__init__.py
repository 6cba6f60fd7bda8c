"""The development stack, for `[dev]` installs: real servers on loopback that need nothing but Python packages.

Servers run as child processes that never outlive the process that started them. Nothing here is for production.
"""
