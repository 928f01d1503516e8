CREATE TABLE seal_enrolments (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    hash BLOB NOT NULL UNIQUE,
    contexts TEXT NOT NULL,
    tier TEXT NOT NULL,
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    key BLOB,
    uses INTEGER,
    attested INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL,
    expires INTEGER,
    revoked INTEGER,
    note TEXT
) STRICT;
CREATE TABLE seal_sessions (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    hash BLOB NOT NULL UNIQUE,
    credential TEXT NOT NULL,
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    tier TEXT NOT NULL,
    context TEXT NOT NULL,
    pinned TEXT,
    workload TEXT NOT NULL,
    agent TEXT NOT NULL,
    execution TEXT NOT NULL,
    key BLOB NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    revoked INTEGER,
    reason TEXT
) STRICT;
CREATE INDEX seal_sessions_by_tenant ON seal_sessions (tenant, number);
CREATE INDEX seal_sessions_by_credential ON seal_sessions (credential);
CREATE INDEX seal_sessions_by_execution ON seal_sessions (execution);
CREATE INDEX seal_sessions_by_end ON seal_sessions (expires);
