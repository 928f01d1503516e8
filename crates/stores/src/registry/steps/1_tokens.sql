CREATE TABLE tokens (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    hash BLOB NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    tier TEXT NOT NULL,
    context TEXT NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER,
    revoked INTEGER,
    note TEXT,
    last_used INTEGER
) STRICT;
CREATE INDEX tokens_by_tenant ON tokens (tenant, number);
CREATE TABLE node (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
