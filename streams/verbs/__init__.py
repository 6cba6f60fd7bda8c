"""What every door does, written once: a verb takes JSON and answers JSON, over HTTP and on the command line alike."""
