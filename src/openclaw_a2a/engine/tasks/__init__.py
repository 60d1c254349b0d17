"""The life of a task: submit, run, journal, subscribe, cancel."""
