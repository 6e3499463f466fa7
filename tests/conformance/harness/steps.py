"""The steps every SDK program performs, in order, each with its hard limit.

A program announces `BEGIN step`, then `PASS step detail` or `FAIL step
detail`, one line each on standard output. The limits are generous because
they only exist to turn a hang into a failure; a healthy run takes a fraction.
"""

STEP_SECONDS_MAX = {
    "connect": 60,
    "crud": 30,
    "not-found": 30,
    "exists": 30,
    "cas-mismatch": 30,
    "counters": 30,
    "append-prepend": 30,
    "expiry": 45,
    "touch": 45,
    "get-and-touch": 45,
    "durability": 45,
    "observed-durability": 45,
    "mutation-tokens": 30,
    "look-up-in": 30,
    "mutate-in": 60,
    "macros": 30,
    "deleted-documents": 30,
    "projections": 30,
    "preserve-expiry": 30,
    "replicas": 30,
    "locks": 45,
    "compression": 30,
    "rights": 60,
    "scans": 60,
    "collections": 90,
    "users": 90,
    "buckets": 90,
    "document-20-mib": 90,
    "too-large": 90,
    "wrong-password": 60,
    "parallel-50000": 180,
    "kill-restart": 240,
}

STEPS = list(STEP_SECONDS_MAX)

# What the programs of the suites with `-transactions` do.
TRANSACTION_STEP_SECONDS_MAX = {
    "commit": 30,
    "roll-back": 30,
    "conflicts": 60,
    "staged-reads": 30,
    "binary": 30,
    "transfers-none": 90,
    "transfers-majority": 90,
    "transfers-persist": 90,
    "transfers-killed": 150,
}

TRANSACTION_STEPS = ["connect", *TRANSACTION_STEP_SECONDS_MAX]

# What the programs of the suites with `-queries` do.
QUERY_STEP_SECONDS_MAX = {
    "query-rows": 60,
    "query-parameters": 30,
    "query-prepared": 30,
    "query-consistency": 60,
    "query-errors": 60,
    "query-indexes": 60,
    "query-streaming": 90,
}

QUERY_STEPS = ["connect", *QUERY_STEP_SECONDS_MAX]

# What the programs of spring/ and ottoman/ do, within the limit between steps.
SPRING_DATA_STEPS = ["connect", "automatic-indexes", "repository", "derived-queries", "paging", "sorting", "statements",
                     "template", "deletes"]
OTTOMAN_STEPS = ["connect", "start", "documents", "find", "index-finders", "references", "builder", "many-changes"]

# What a second program does beside `transfers-killed`, until it is killed.
LOST_TRANSFERS = "transfers-lost"

# What programs do while the nodes of their cluster come and go, see cluster.py.
CLUSTER_STEP_SECONDS_MAX = {"join": 120, "kill": 240, "return": 240, "leave": 120}

CLUSTER_STEPS = ["connect", *CLUSTER_STEP_SECONDS_MAX]

# What programs do while nodes are killed that have copies of their bucket, see replicas.py. The programs of the other
# steps are the same as on one node; users are not shared by nodes.
REPLICA_STEP_SECONDS_MAX = {"new-client": 60, "kill-again": 240, "return-again": 240, "whole-answers": 60}

REPLICA_STEPS = ["connect", "crud", "not-found", "exists", "cas-mismatch", "counters", "append-prepend", "expiry",
                 "durability", "observed-durability", "mutation-tokens", "look-up-in", "mutate-in", "macros",
                 "deleted-documents", "preserve-expiry", "replicas", "locks", "compression", "scans", "collections",
                 "document-20-mib", "kill-restart", "kill", "new-client", "return", "kill-again", "return-again"]

# Afterwards, where the SDK has them.
REPLICA_TRANSACTION_STEPS = ["commit", "roll-back", "conflicts", "staged-reads", "transfers-majority", "transfers-persist"]

# What programs of all languages do in the suite `failover`.
FAILOVER_STEPS = ["connect", "durability", "observed-durability", "replicas", "kill", "new-client", "return"]
FAILOVER_TRANSACTION_STEPS = ["commit"]

# In one language: what a statement sees is no matter of the SDK.
REPLICA_QUERY_STEPS = ["whole-answers"]

# What python/change_streams.py does beside a consumer.
CHANGE_STREAM_STEP_SECONDS_MAX = {
    "changes": 150,
    "backfill": 90,
    "filters": 90,
    "dropped-collection": 90,
    "consumer-killed": 120,
    "rollback": 90,
    "server-killed": 120,
    "failovers": 600,
    "failover-rollback": 240,
}

# On three nodes, and what happens to these in the first of them.
STREAM_FAILOVER_STEPS = ["connect", "failovers", "failover-rollback"]
STREAM_CHANGES = ["kill", "return", "kill-again", "return-again"]
STREAM_FAILOVER_CHANGES = ["kill", "return"]

CHANGE_STREAM_STEPS = ["connect", *(step for step in CHANGE_STREAM_STEP_SECONDS_MAX if step not in STREAM_FAILOVER_STEPS)]
