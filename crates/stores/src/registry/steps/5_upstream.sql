-- Secrets, sealed. A version that was replaced or deleted keeps its row, so that its number is not used again, and
-- loses its value.
CREATE TABLE secrets (
    number INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    key TEXT,
    sealed BLOB,
    created INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires INTEGER,
    ended INTEGER,
    UNIQUE (tenant, name, version)
) STRICT;
CREATE UNIQUE INDEX secrets_current ON secrets (tenant, name) WHERE ended IS NULL;
CREATE INDEX secrets_ended ON secrets (ended) WHERE ended IS NOT NULL;

-- MCP servers that an operator added while the node ran, beside those of the configuration file.
CREATE TABLE upstreams (
    name TEXT PRIMARY KEY,
    text TEXT NOT NULL,
    added INTEGER NOT NULL,
    added_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Definitions of tools: of each at most one accepted and one proposed, and some that were before or were rejected.
CREATE TABLE pins (
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    digest TEXT NOT NULL,
    definition TEXT NOT NULL,
    state TEXT NOT NULL,
    seen INTEGER NOT NULL,
    decided INTEGER,
    decided_by TEXT,
    PRIMARY KEY (server, tool, digest)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX pins_accepted ON pins (server, tool) WHERE state = 'accepted';
CREATE UNIQUE INDEX pins_proposed ON pins (server, tool) WHERE state = 'proposed';
