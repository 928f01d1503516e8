-- Every version of a security context that was in force here, and since when sessions may no longer hold on to it.
CREATE TABLE contexts (
    number INTEGER PRIMARY KEY,
    version TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    text TEXT NOT NULL,
    first_seen INTEGER NOT NULL,
    retired INTEGER
) STRICT;
CREATE INDEX contexts_by_name ON contexts (name, number);

-- What a session, or a credential without one, has read: a row per trust class and source.
CREATE TABLE labels (
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    holder TEXT NOT NULL,
    trust TEXT NOT NULL,
    source TEXT NOT NULL,
    origin TEXT,
    first_seen INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind, holder, trust, source)
) STRICT, WITHOUT ROWID;
CREATE INDEX labels_by_expiry ON labels (expires);

-- Contexts that an operator applied while the node ran, laid over those that ship with it.
CREATE TABLE applied_contexts (
    name TEXT PRIMARY KEY,
    version TEXT NOT NULL,
    text TEXT NOT NULL,
    applied INTEGER NOT NULL,
    applied_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;
