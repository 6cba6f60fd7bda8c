"""The workflow engine: a pure library that turns a definition into a plan and runs it one segment at a time.

It knows neither Kafka nor Postgres nor HTTP. The compiler of schema sources, the call to a service, the keeping of a
checkpoint, the evaluation of expressions and the clock come in as arguments.

    definition       the envelope, read strictly
    descriptors      the schema, in a pool of its own (descriptor_files: brought into the form that is pinned)
    json_values      plain JSON values, within limits, and how errors show them
    protojson_*      messages from JSON and to JSON (struct_values: the free-form ones)
    rule_text        the grammar of mapping rules
    mapping*         text rules compiled into reads, coercions and writes
    evaluation       what is asked of an evaluator of expressions (CEL)
    cel*             expressions checked, and what they give assigned: gates and CEL rules
    composition      all the rules that build one message
    compiler         definition and schema make a verified plan
    runner           one segment of one run
    endings          what follows from how a segment ended; backoff: how long to wait before the next try
"""
