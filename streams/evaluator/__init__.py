"""What people send that only a native program can read, evaluated in child processes with a deadline and limits.

protoc*            .proto sources compiled, a child for each compilation
child_evaluator    expressions and rules, in children that stay: channel, turns, frames; child is the other side
evaluators         what evaluators have in common, and the one in this process
operations         what can be asked (all_operations finds them; cel_operations and bounds: expressions;
                   rule_operations and rule_probes: the rules of schemas)
"""
