"""Calls of steps: where targets are, and unary gRPC calls over channels that the whole process shares."""
