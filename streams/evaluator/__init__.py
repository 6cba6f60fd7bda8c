"""What people send that only a native program can read, evaluated in child processes with a deadline and limits."""
