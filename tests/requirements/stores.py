"""Rules about stored tasks."""

from tests.requirements.requirement import rules

STORES = (
    *rules(
        "ours: stores",
        store_task={
            "few-events": "A task that ends after few large events is not stored once more whole.",
        },
        store_json__file={
            "contents": "Large strings are stored once per task; a record that refers to them is "
            "of a schema of its own.",
        },
    ),
    *rules(
        "inbound contract, section 9",
        store_task={
            "commit": "A commit changes snapshot, journal and sequence together or not at all.",
            "serialised": "Writes of one task happen one after the other.",
            "copies": "What a reader was given does not change under it.",
            "first-snapshot": "The first snapshot is no journal entry and counts nothing.",
            "merge-status": "A status replaces the status and its message joins history once.",
            "merge-artifact": "An artifact replaces its namesake or, appending, continues it.",
            "journal-internal": "Peers never see the journal.",
            "memory": "The memory store behaves the same and keeps nothing.",
        },
        store_json__file={
            "file-name": "Each task is one file named by its id in unpadded base64url.",
            "atomic": "A file is written aside and renamed, so no reader sees half of it.",
            "schema-v2": "The file is the contract's version 2 record.",
            "bad-records": "Records with wrong members, sequences or kinds are refused.",
            "version-1": "A version 1 record loads and becomes version 2 with the next write.",
            "one-writer": "A directory has one writer, held by a lock file with pid and time.",
            "lock-counted": "The lock is counted within a process.",
            "lock-reclaimed": "A lock of a dead, recycled or too old holder is taken over.",
            "lock-refused": "After ten seconds a held lock fails with pid and path.",
            "lock-removed": "The lock is removed on release.",
        },
    ),
)
